"""Joins what a study has found into one record, one table and one plot."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.backends.backend_svg import FigureCanvasSVG
from picture import draw
from settings import SEEDS, SPARSITIES
from study_plans import STUDIES

STYLE = {"svg.hashsalt": "accuracy", "svg.fonttype": "none", "font.size": 9}
SCORE = {"language": "validation_loss", "digits": "loss"}
LABEL = {"language": "validation loss (nats/byte)", "digits": "held-out loss (nats)"}
BEGIN, END = "<!-- table -->", "<!-- end of table -->"


class Row(NamedTuple):
    """One case as tables show it; None where there is nothing to show."""

    case: str
    target: float
    score: float
    """Mean over the seeds."""
    seeds: int
    least_over_dense: float
    """Lowest difference to the dense model that was tuned with the same seed."""
    most_over_dense: float
    accuracy: float | None
    before: float
    """Score of the model pruned at once by magnitude, without tuning."""
    retained: float
    worst_imbalance: float | None
    kernel: str | None
    predicted_us: float | None
    """On the H200, by the kernel that is predicted to be fastest."""
    predicted_a100_us: float | None
    measured_kernel: str | None
    measured_us: float | None
    """On the H200, by the kernel that was fastest."""
    ratio: float | None
    """Predicted over measured, of the plans that ran."""


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", choices=STUDIES, required=True)
    parser.add_argument("--record", type=Path, required=True, help="a JSON file, read and written again")
    parser.add_argument("--add", type=Path, nargs="*", default=[], help="JSON files of the other scripts")
    parser.add_argument("--docs", type=Path, required=True, help="folder of STUDY.md and STUDY.svg")
    return parser.parse_args()


def joined(record: dict[str, Any], files: list[Path]) -> dict[str, Any]:
    """The record with the outcome of other scripts.

    Lists under `train` and `tuned`, since a study may be done in parts, each with a dense model of its own;
    `predicted` and `measured` are one each, cases of later files over those of earlier ones.
    """
    for path in files:
        part = json.loads(path.read_text(encoding="utf-8"))
        if "gpus" in part:
            known = record.get("predicted", {}).get("gpus", {})
            gpus = {gpu: {**known.get(gpu, {}), **cases} for gpu, cases in part["gpus"].items()}
            record["predicted"] = {**part, "gpus": {**known, **gpus}}
        elif "turns" in part:
            known = record.get("measured", {}).get("cases", {})
            record["measured"] = {**part, "cases": {**known, **part["cases"]}}
        else:
            record.setdefault("train" if "curve" in part else "tuned", []).append(part)
    return record


def rows_of(study: str, record: dict[str, Any]) -> list[Row]:
    """One row per case with a run that did not fail, in the order of the settings.

    A case that several parts have is taken from the one with most runs.
    """
    best: dict[str, list[dict[str, Any]]] = {}
    for part in record["tuned"]:
        for name, runs in _runs(study, part).items():
            best[name] = max(best.get(name, []), runs, key=len)
    known = [case for case in STUDIES[study].cases if best.get(case.name)]
    return [_row(study, case.name, case.sparsity, best[case.name], record) for case in known]


def _runs(study: str, part: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Case -> runs that did not fail, each with `score` and its difference to the dense run of its seed."""
    good = {case["case"]: [run for run in case["runs"] if "failed" not in run] for case in part["cases"]}
    dense = {run["seed"]: run[SCORE[study]] for run in good["dense@0"]}
    return {name: [_scored(run, run[SCORE[study]], dense) for run in runs] for name, runs in good.items()}


def _scored(run: dict[str, Any], score: float, dense: dict[int, float]) -> dict[str, Any]:
    return {**run, "score": score, "over": score - dense[run["seed"]]}


def _row(study: str, name: str, sparsity: float, runs: list[dict[str, Any]], record: dict[str, Any]) -> Row:
    uneven = [run["worst_imbalance"] for run in runs if run["worst_imbalance"] is not None]
    predicted = record.get("predicted", {}).get("gpus", {})
    fastest = _fastest(predicted.get("h200-sxm", {}).get(name, {}))
    measured = record.get("measured", {}).get("cases", {}).get(name, {})
    seen = _fastest({kernel: one["us"] for kernel, one in measured.items()})
    ratio = ratios(record).get(f"{name} {seen[0]}")
    return Row(
        case=name.split("@")[0],
        target=sparsity,
        score=float(np.mean([run["score"] for run in runs])),
        seeds=len(runs),
        least_over_dense=min(run["over"] for run in runs),
        most_over_dense=max(run["over"] for run in runs),
        accuracy=float(np.mean([run["accuracy"] for run in runs])) if "accuracy" in runs[0] else None,
        before=_before(runs),
        retained=float(np.mean([run["retained_importance"] for run in runs])),
        worst_imbalance=max(uneven) if uneven else None,
        kernel=fastest[0],
        predicted_us=fastest[1],
        predicted_a100_us=_fastest(predicted.get("a100-sxm4-80gb", {}).get(name, {}))[1],
        measured_kernel=seen[0],
        measured_us=seen[1],
        ratio=ratio,
    )


def ratios(record: dict[str, Any]) -> dict[str, float]:
    """Case and kernel -> predicted over measured time on the H200, of everything that has both.

    Plans change with their planner: `predicted_us` beside a measured time is of the very plans that ran,
    where they are no longer those of the predictions.
    """
    predicted = record.get("predicted", {}).get("gpus", {}).get("h200-sxm", {})
    found = {}
    for case, kernels in record.get("measured", {}).get("cases", {}).items():
        for kernel, one in kernels.items():
            us = one.get("predicted_us", predicted.get(case, {}).get(kernel))
            if us is not None:
                found[f"{case} {kernel}"] = us / one["us"]
    return found


def _before(runs: list[dict[str, Any]]) -> float:
    """Pruned at once by magnitude and not tuned."""
    if "at_once" in runs[0]:
        return float(runs[0]["at_once"]["validation_loss"])
    return float(np.mean([run["loss_before"] for run in runs]))


def _fastest(times: dict[str, float]) -> tuple[str | None, float | None]:
    return min(times.items(), key=lambda item: item[1]) if times else (None, None)


def table(study: str, rows: list[Row]) -> str:
    """Markdown, one block of lines per sparsity; the dense model on top of each."""
    digits = study == "digits"
    head = ["pattern", "loss", "over dense", *(["accuracy %"] if digits else []), "loss untuned"]
    head += [
        "kept importance %",
        "worst imbalance",
        "H200 us",
        "kernel",
        "A100 us",
        "measured H200 us",
        "ratio",
    ]
    lines = []
    for sparsity in SPARSITIES:
        if not any(row.target == sparsity for row in rows):
            continue
        lines += [f"### {sparsity:.0%} pruned", "", _line(head), _line(["---"] * len(head))]
        chosen = [row for row in rows if row.target in (0.0, sparsity)]
        chosen.sort(key=lambda row: (row.target > 0, row.score))
        lines += [_line(_cells(row, digits=digits)) for row in chosen] + [""]
    return "\n".join(lines)


def write_table(page: Path, text: str) -> None:
    """Put the table between its marks on the page, which is made if there is none."""
    known = page.read_text(encoding="utf-8") if page.exists() else f"{BEGIN}\n{END}\n"
    before, rest = known.split(BEGIN)
    after = rest.split(END)[1]
    page.write_text(f"{before}{BEGIN}\n{text}{END}{after}", encoding="utf-8")


def _cells(row: Row, *, digits: bool) -> list[str]:
    measured = "" if row.measured_us is None else f"{row.measured_us:.1f} ({row.measured_kernel})"
    return [
        row.case,
        f"{row.score:.4f}" + (f" ({row.seeds} of {len(SEEDS)} seeds)" if row.seeds < len(SEEDS) else ""),
        f"{row.least_over_dense:+.4f} to {row.most_over_dense:+.4f}" if row.target else "",
        *([f"{100 * (row.accuracy or 0):.2f}"] if digits else []),
        f"{row.before:.3f}",
        f"{100 * row.retained:.1f}",
        "" if row.worst_imbalance is None else f"{row.worst_imbalance:.3f}",
        "" if row.predicted_us is None else f"{row.predicted_us:.1f}",
        row.kernel or "",
        "" if row.predicted_a100_us is None else f"{row.predicted_a100_us:.1f}",
        measured,
        "" if row.ratio is None else f"{row.ratio:.2f}",
    ]


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _say_agreement(found: dict[str, float]) -> None:
    if found:
        values = np.array(sorted(found.values()))
        print(
            f"{values.size} cases on kernels: predicted / measured {np.median(values):.3f} in the median,"
            f" {values[0]:.3f} to {values[-1]:.3f}, {100 * np.mean(np.abs(values - 1)):.1f} % off in the mean"
        )


def main() -> None:
    options = parse_options()
    known = json.loads(options.record.read_text(encoding="utf-8")) if options.record.exists() else {}
    record = joined(known, options.add)
    options.record.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    rows = rows_of(options.study, record)
    write_table(options.docs / f"{options.study}.md", table(options.study, rows))
    _say_agreement(ratios(record))
    with matplotlib.rc_context(STYLE):
        canvas = FigureCanvasSVG(draw(rows, SPARSITIES, LABEL[options.study]))
        canvas.print_svg(options.docs / f"{options.study}.svg", metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    main()

"""From the rows of a study to its record, a table and a picture.

    python examples/accuracy/report.py --record FOLDER [--out OUT] [--page PAGE.md]
        [--picture PICTURE.svg [--show NAME=LABEL ...]]

With `--out` a run's rows and scores (fp16, packed) come into the record, in place of what it had of the same
cases; the rest is made of the record alone. Tables are written beside it, and replace what lies between their
marks in the page.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from paired import Cube, Interval, interval

ROWS, SCORES, TABLES = "rows.jsonl", "scores.npz", "tables.md"
DISTURBED = 0.02
"""How far the dense time of a process may be from the median of all."""
DENSE, UNTUNED, BASE = "dense", "untuned", "tile-wise:128"
MOST_APART = 0.06
"""Largest difference of two measured times of `BASE`, as shares of the dense time, between which its harm is
interpolated."""
LEAST_SPAN = 6.0
"""Points of the dense time that a picture shows at least, so that small differences of time look small."""
SHOWN = (
    "step",
    "contestant",
    "share",
    "seed",
    "corrected",
    "sparsity",
    "predicted_share",
    "measured_share",
    "us",
)
SHOWN += (
    "importance",
    "updates",
    "tuned",
    "error",
    "dense_error",
    "score",
    "unit",
    "device",
    "torch",
    "more_is_better",
    "step_s",
)
KEY = ("step", "contestant", "share", "seed", "importance", "updates", "tuned")

Row = dict[str, Any]


class Cell(NamedTuple):
    """A contestant at one time."""

    contestant: str
    share: float
    """Asked for."""
    measured: float | None
    """Time over the dense model's; None where nothing runs it."""
    sparsity: float
    harm: Interval
    """How much worse than the dense model with the same tuning."""
    against: Interval | None
    """Less than 0: better than `BASE` at the same measured time, if that is between two close times of
    `BASE`, else at the share that both were asked for."""
    better: str
    """Seeds in which it is better than `BASE`, of those that both have."""


class Record:
    """Rows and scores of a study."""

    def __init__(self, folder: Path) -> None:
        self.rows = _rows(folder / ROWS)
        with np.load(folder / SCORES) as stored:
            self.scores = {name: stored[name].astype(np.float64) for name in stored}
        self.sign = -1.0 if any(row.get("more_is_better") for row in self.rows) else 1.0
        self.unit = next((row["unit"] for row in self.rows if "unit" in row), "")

    def last(self, **wanted: Any) -> Row:
        """The newest row with these values, or an empty one."""
        found = [row for row in self.rows if all(row.get(name) == each for name, each in wanted.items())]
        return found[-1] if found else {}

    def seeds(self, contestant: str, share: float) -> list[int]:
        """Seeds that were tuned and whose items the record has."""
        found = self.harm_of_seeds(contestant, share)
        return [seed for seed in found if f"{contestant}|{share}|{seed}" in self.scores]

    def harm_of_seeds(self, contestant: str, share: float) -> dict[int, float]:
        """Seed -> mean harm, of all that were tuned, those whose items are not in the record too."""
        tuned = [row for row in self.rows if row["step"] == "tune"]
        dense = {row["seed"]: row["score"] for row in tuned if row["contestant"] == DENSE}
        own = {
            row["seed"]: row["score"]
            for row in tuned
            if (row["contestant"], row["share"]) == (contestant, share)
        }
        return {seed: self.sign * (own[seed] - dense[seed]) for seed in sorted(own) if seed in dense}

    def harms(self, contestant: str, share: float, seeds: list[int]) -> Cube:
        """Items' scores less the dense model's, (seeds, items); more is worse."""
        return self.sign * np.stack(
            [
                self.scores[f"{contestant}|{share}|{seed}"] - self.scores[f"{DENSE}|1.0|{seed}"]
                for seed in seeds
            ]
        )

    def measured(self, contestant: str, share: float) -> float | None:
        """Time over the dense model's of the same process, or of all where that one was disturbed."""
        us = self.last(step="time", contestant=contestant, share=share).get("us")
        if us is None:
            return None
        median = np.median([_best(row["us"], "dense") for row in self.rows if row["step"] == "time"])
        own = _best(us, "dense")
        return _best(us, "sparse") / (own if abs(own / median - 1.0) < DISTURBED else float(median))

    def base_at(self, contestant: str, share: float) -> dict[float, float]:
        """Shares asked of `BASE` -> parts of them that together need the measured time of a contestant."""
        asked = {row["share"] for row in self.rows if row["step"] == "tune" and row["contestant"] == BASE}
        same = {share: 1.0} if share in asked else {}
        own = self.measured(contestant, share)
        if own is None:
            return same
        times = {each: time for each in asked if (time := self.measured(BASE, each)) is not None}
        faster = max(((time, each) for each, time in times.items() if time <= own), default=None)
        slower = min(((time, each) for each, time in times.items() if time > own), default=None)
        if faster is None or slower is None or slower[0] - faster[0] > MOST_APART:
            return same
        part = (own - faster[0]) / (slower[0] - faster[0])
        return {faster[1]: 1.0 - part, slower[1]: part}

    def cells(self) -> list[Cell]:
        """All contestants at all times, in the order of the rows."""
        keys = {(row["contestant"], row["share"]): None for row in self.rows if row["step"] == "tune"}
        return [self.cell(*key) for key in keys if key[0] != DENSE]

    def cell(self, contestant: str, share: float) -> Cell:
        """One of them, compared with the base if both have a seed."""
        seeds = self.seeds(contestant, share)
        parts = self.base_at(contestant, share)
        both = [seed for seed in seeds if all(seed in self.seeds(BASE, asked) for asked in parts)]
        against, better = None, ""
        if both and parts and contestant != BASE:
            base = sum(part * self.harms(BASE, asked, both) for asked, part in parts.items())
            apart = self.harms(contestant, share, both) - base
            against = interval(apart)
            better = f"{int((apart.mean(1) < 0).sum())} of {len(both)}"
        masks = self.last(step="masks", contestant=contestant, share=share, seed=seeds[0])
        return Cell(
            contestant,
            share,
            self.measured(contestant, share),
            masks.get("sparsity", float("nan")),
            interval(self.harms(contestant, share, seeds)),
            against,
            better,
        )


def _best(us: dict[str, float], kind: str) -> float:
    return min(time for form, time in us.items() if form.startswith(kind))


def make_record(out: Path, record: Path) -> None:
    """Rows without what only the run needs, and all scores in one file; what the record has besides stays."""
    record.mkdir(parents=True, exist_ok=True)
    rows = _rows(out / ROWS)
    shown = [{name: row[name] for name in SHOWN if row.get(name) is not None} for row in rows]
    anew = {_key(row) for row in shown}
    kept = [row for row in _rows(record / ROWS) if _key(row) not in anew] + shown
    (record / ROWS).write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
    scores = {}
    if (record / SCORES).exists():
        with np.load(record / SCORES) as stored:
            scores = dict(stored)
    for row in rows:
        if row["step"] in ("tune", "train"):
            name, share = row.get("contestant", UNTUNED), row.get("share", 1.0)
            file = out / "scores" / f"{file_name(name, share, row['seed'])}.npy"
            scores[f"{name}|{share}|{row['seed']}"] = np.load(file)
    np.savez_compressed(record / SCORES, **scores)


def _rows(file: Path) -> list[Row]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def _key(row: Row) -> tuple[Any, ...]:
    """What one row is of."""
    return tuple(row.get(name) for name in KEY)


def file_name(contestant: str, share: float, seed: int) -> str:
    """What files of a case are called."""
    return "".join(each if each.isalnum() or each in "._" else "-" for each in f"{contestant}-{share}-{seed}")


def table(record: Record) -> str:
    """A row a contestant and time; the least harm of each time in bold."""
    cells = record.cells()
    runs = [cell for cell in cells if cell.measured is not None]
    best = {share: min(c.harm.mean for c in runs if c.share == share) for share in {c.share for c in runs}}
    lines = [
        f"| time asked for | contestant | measured | pruned | worse than dense, {record.unit} "
        f"| against {BASE} | seeds better |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for share in sorted({cell.share for cell in cells}, reverse=True):
        for cell in sorted((c for c in cells if c.share == share), key=lambda c: c.harm.mean):
            bold = "**" if cell.measured is not None and cell.harm.mean == best[share] else ""
            asked = "its own" if share == 1.0 else f"{share:.0%}"
            measured = "not timed" if cell.measured is None else f"{cell.measured:.1%}"
            lines.append(
                f"| {asked} | {bold}{cell.contestant}{bold} | {measured} | {cell.sparsity:.0%} "
                f"| {bold}{_words(cell.harm)}{bold} | {_words(cell.against)} | {cell.better} |"
            )
    return "\n".join(lines) + "\n"


def _words(found: Interval | None) -> str:
    if found is None:
        return ""
    return f"{found.mean:+.4f} ({found.low:+.4f}…{found.high:+.4f})"


def draw(record: Record, path: Path, labels: dict[str, str]) -> None:
    """Harm against measured time: a line of means for each contestant, and a point for each seed.

    `labels` names the contestants to show; all are shown, by their own names, where it is empty.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"svg.hashsalt": "study", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(7.5, 4.5), layout="constrained")
        axes = figure.add_subplot(
            xlabel="measured time of the whole model, % of dense", ylabel=f"worse than dense, {record.unit}"
        )
        cells = [cell for cell in record.cells() if cell.measured is not None]
        cells = [cell for cell in cells if not labels or cell.contestant in labels]
        for place, name in enumerate(dict.fromkeys(cell.contestant for cell in cells)):
            own = sorted((c for c in cells if c.contestant == name), key=lambda c: c.measured or 0.0)
            points = [
                (100 * (c.measured or 0.0), list(record.harm_of_seeds(name, c.share).values())) for c in own
            ]
            style = {"color": f"C{place}", "marker": "osD^vP*"[place % 7], "markersize": 4}
            means = [float(np.mean(each)) for _, each in points]
            axes.plot([x for x, _ in points], means, label=labels.get(name, name), linewidth=1.2, **style)
            for x, each in points:
                axes.plot([x] * len(each), each, linestyle="none", alpha=0.45, **(style | {"markersize": 3}))
        if cells:
            axes.legend(frameon=False)
            low, high = axes.get_xlim()
            more = max(LEAST_SPAN - (high - low), 0.0) / 2
            axes.set_xlim(low - more, high + more)
        axes.spines[["top", "right"]].set_visible(False)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def recovery_table(record: Record) -> str:
    """What each way to recover brings, means over seeds; empty where none was tried."""
    found: dict[tuple[str, bool, str], list[float]] = {}
    for row in record.rows:
        if row["step"] == "recover":
            found.setdefault((row["importance"], row["updates"], row["tuned"]), []).append(row["score"])
    lines = [f"| importance | kept weights updated | tuned | {record.unit} |", "| --- | --- | --- | --- |"]
    for (importance, updates, tuned), scores in found.items():
        updated = "yes" if updates else "no"
        lines.append(f"| {importance} | {updated} | {tuned} | {np.mean(scores):.3f} |")
    return "\n".join(lines) + "\n" if found else ""


def put_in(page: Path, tables: dict[str, str]) -> None:
    """Replace what lies between the marks of each table that the page has."""
    content = page.read_text(encoding="utf-8")
    for name, text in tables.items():
        begin, end = f"<!-- {name} begins -->\n", f"<!-- {name} ends -->"
        if begin in content and text:
            before, rest = content.split(begin)
            content = before + begin + text + end + rest.split(end)[1]
    page.write_text(content, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--record", type=Path, required=True)
    parser.add_argument("--out", type=Path, help="folder of a run")
    parser.add_argument("--page", type=Path)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--show", nargs="+", default=(), metavar="NAME=LABEL", help="of the picture alone")
    asked = parser.parse_args()
    if asked.page is not None and not asked.page.is_file():
        parser.error(f"--page: wanted a page with marks of tables, got {asked.page}, which is no file")
    if asked.out is not None:
        make_record(asked.out, asked.record)
    record = Record(asked.record)
    tables = "\n".join(filter(None, (table(record), recovery_table(record))))
    (asked.record / TABLES).write_text(tables, encoding="utf-8")
    print(tables, end="")
    if asked.page is not None:
        put_in(asked.page, {"table": table(record), "recovery": recovery_table(record)})
    if asked.picture is not None:
        draw(record, asked.picture, dict(each.rsplit("=", 1) for each in asked.show))


if __name__ == "__main__":
    main()

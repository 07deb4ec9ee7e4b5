"""Why tiles cost what they cost: importance that masks keep, and the loss without tuning, by kind of layer.

    python examples/accuracy/why_tiles.py --out OUT [--sparsity 0.5] [--processes 12]

OUT is a run whose dense model of seed 0 is trained. Each kind of layer is pruned alone: by tiles
of several heights, of rows as they are and in an order of importance, and by single weights and 2:4; once as
masks leave it, once with kept weights that make up for pruned ones. A row of OUT/why.jsonl for each; masks of
all layers at once are written for `run.py`'s tuning under the pattern's name.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

sys.path.append(str(Path(__file__).parent))

from contestants import Masks
from rows import turn
from run import Run, parse_options

from prunecast.patterns import parse_pattern
from prunecast.patterns.calibration import updated_weights
from prunecast.patterns.row_groups import cluster_rows
from prunecast.torch import input_moments

KINDS = {"Q, K, V": ("q_proj", "k_proj", "v_proj"), "O": ("o_proj",), "fc1": ("c_fc",), "fc2": ("c_proj",)}
HEIGHTS = (32, 64, 128, 256)
ORDERED, ALIKE = ", ordered", ", alike"
"""Rows by falling importance; rows that keep alike, as Shfl-BW groups them."""
MOST_UPDATED = 2e12
"""Operations of a weight update above which it is left out: each mask of a row needs a factorisation."""


def patterns() -> list[str]:
    """Names of all that is tried, references first."""
    tiles = [f"tiles of {height} rows{order}" for height in HEIGHTS for order in ("", ORDERED)]
    return ["unstructured", "2:4", *tiles, f"tiles of 128 rows{ALIKE}"]


def mask_of(pattern: str, scores: np.ndarray, sparsity: float) -> np.ndarray:
    """The mask (M, K) of one matrix; columns of all its tiles compete."""
    if not pattern.startswith("tiles"):
        told = None if pattern == "2:4" else sparsity
        return parse_pattern(pattern).prune({"": scores}, told)[""]
    height = int(pattern.split()[2])
    order = np.arange(len(scores))
    if pattern.endswith(ORDERED):
        order = np.argsort(-scores.sum(1), kind="stable")
    elif pattern.endswith(ALIKE):
        order = np.argsort(cluster_rows(scores, sparsity, height=height), kind="stable")
    mask = np.empty(scores.shape, bool)
    mask[order] = parse_pattern(f"tile-wise:{height}").prune({"": scores[order]}, sparsity)[""]
    return mask


class Pruned(NamedTuple):
    """One matrix with one pattern."""

    name: str
    pattern: str
    kept: float
    """Importance that the mask keeps, of all that there is."""
    total: float
    mask: np.ndarray
    updated: np.ndarray | None


def prune_one(
    name: str,
    pattern: str,
    sparsity: float,
    scores: np.ndarray,
    weights: np.ndarray,
    moments: np.ndarray | None,
) -> Pruned:
    """The mask, and the weights that make up for what it removes unless that takes too long."""
    mask = mask_of(pattern, scores, sparsity)
    masks = len(np.unique(np.packbits(mask, axis=1), axis=0))
    updated = None
    if moments is not None and masks * (mask.shape[1] * (1 - sparsity)) ** 3 / 3 < MOST_UPDATED:
        updated = updated_weights(weights, mask, moments).astype(np.float32)
    kept = float(scores.sum(where=mask, dtype=np.float64))
    return Pruned(name, pattern, kept, float(scores.sum(dtype=np.float64)), mask, updated)


class Why:
    """A dense model and what is known of it."""

    def __init__(self, options: argparse.Namespace) -> None:
        arguments = ["tune", "--out", str(options.out), *(["--tiny"] if options.tiny else [])]
        self.run, self.options = Run(parse_options(arguments)), options
        self.importance, self.dense = self.run.importance(0), self.run.dense(0)
        study, device = self.run.study, self.run.asked.device
        self.model = study.build(device).eval()
        self.model.load_state_dict(self.dense)
        batches = list(islice(study.batches(100, device), 4 if options.tiny else 32))
        with turn(self.run.lock(), alone=False):
            self.moments = input_moments(self.model, lambda: [study.outputs(self.model, b) for b in batches])
            self.whole = self.loss()

    def loss(self) -> float:
        """Of the held-out windows."""
        return float(np.mean(self.run.study.scores(self.model)))

    @torch.no_grad()
    def loss_with(self, weights: Mapping[str, torch.Tensor]) -> float:
        """Loss more than that of the dense model."""
        self.model.load_state_dict(self.dense | {name: each.cpu() for name, each in weights.items()})
        with turn(self.run.lock(), alone=False):
            return self.loss() - self.whole

    def row(self, kind: str, pattern: str, found: list[Pruned]) -> dict[str, Any]:
        """Importance kept, and both losses."""
        masked = {each.name: self.dense[each.name] * torch.from_numpy(each.mask) for each in found}
        kept = sum(each.kept for each in found) / sum(each.total for each in found)
        updated = [torch.from_numpy(each.updated) for each in found if each.updated is not None]
        row = {"kind": kind, "pattern": pattern, "sparsity": self.options.sparsity, "kept": round(kept, 5)}
        row["loss"] = round(self.loss_with(masked), 5)
        if len(updated) == len(found):
            named = zip((each.name for each in found), updated, strict=True)
            row["updated_loss"] = round(self.loss_with(dict(named)), 5)
        return row

    def write_masks(self, pattern: str, found: list[Pruned]) -> None:
        """All layers pruned by one pattern, for tuning."""
        name = {"unstructured": "unstructured 50 %", "2:4": "2:4 whole"}.get(pattern, pattern)
        kept = {each.name: each.mask for each in found}
        case = {"contestant": name, "share": 1.0, "seed": 0}
        self.run.write_masks(case, Masks(kept, dict.fromkeys(kept, "zeros"), 0.5, None))
        final = self.options.out / "final"
        if final.is_dir():
            (final / self.run.masks_file(case).stem).touch()


def table(rows: list[dict[str, Any]]) -> str:
    """A line for each pattern: importance kept, loss, and loss with the weights updated, by kind of layer."""
    lines = ["| pattern | " + " | ".join(KINDS) + " |", "| --- " * (1 + len(KINDS)) + "|"]
    known = {(row["pattern"], row["kind"]): row for row in rows}
    for pattern in patterns():
        cells = []
        for kind in KINDS:
            row = known[pattern, kind]
            updated = f"{row['updated_loss']:.3f}" if "updated_loss" in row else "-"
            cells.append(f"{row['kept']:.2f}; {row['loss']:.3f}, {updated}")
        lines.append(f"| {pattern} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Loss against importance lost, a panel without and one with the weight update."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    marks = {"unstructured": "*", "2:4": "D", ORDERED: "^", ALIKE: "s", "rows": "o"}
    with rc_context({"svg.hashsalt": "why", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(7.5, 3.6), layout="constrained")
        for place, (field, title) in enumerate(
            (("loss", "masked"), ("updated_loss", "kept weights updated"))
        ):
            axes = figure.add_subplot(1, 2, place + 1, yscale="log", ylim=(5e-4, 3), title=title)
            axes.set(xlabel="importance lost", ylabel="loss more than dense, nats a token")
            for number, kind in enumerate(KINDS):
                for row in (each for each in rows if each["kind"] == kind and field in each):
                    mark = next(m for end, m in marks.items() if row["pattern"].endswith(end))
                    axes.plot(1 - row["kept"], row[field], mark, color=f"C{number}", alpha=0.7)
                axes.plot([], [], "o", color=f"C{number}", label=kind)
            if not place:
                for name, mark in zip(
                    ("single weights", "2:4", "rows ordered", "rows alike", "neighbours"),
                    marks.values(),
                    strict=True,
                ):
                    axes.plot([], [], mark, color="grey", label=name)
                axes.legend(frameon=False, fontsize=7, ncols=2, loc="lower right")
            axes.spines[["top", "right"]].set_visible(False)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--out", type=Path, help="folder of a run")
    parser.add_argument("--sparsity", type=float, default=0.5)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--record", type=Path, help="rows of a run: prints the table, needs no GPU")
    parser.add_argument("--picture", type=Path, help="with --record: importance kept against loss")
    options = parser.parse_args()
    if options.record is not None:
        rows = [json.loads(line) for line in options.record.read_text(encoding="utf-8").splitlines()]
        print(table(rows), end="")
        if options.picture is not None:
            draw(rows, options.picture)
        return
    why = Why(options)
    by_kind = {
        kind: [n for n in why.importance if any(f".{e}." in n for e in ends)] for kind, ends in KINDS.items()
    }
    found: dict[str, list[Pruned]] = {}
    with (
        ProcessPoolExecutor(options.processes, get_context("spawn")) as pool,
        (options.out / "why.jsonl").open("a") as file,
    ):
        for kind, names in by_kind.items():
            jobs = [
                pool.submit(
                    prune_one,
                    name,
                    pattern,
                    options.sparsity,
                    why.importance[name],
                    why.dense[name].numpy(),
                    why.moments[name],
                )
                for pattern in patterns()
                for name in names
            ]
            ready: dict[str, list[Pruned]] = {}
            for job in as_completed(jobs):
                each = job.result()
                own = ready.setdefault(each.pattern, [])
                own.append(each)
                if len(own) == len(names):
                    row = why.row(kind, each.pattern, own)
                    file.write(json.dumps(row) + "\n")
                    file.flush()
                    found.setdefault(each.pattern, []).extend(one._replace(updated=None) for one in own)
    for pattern, own in found.items():
        if (
            pattern in ("unstructured", "2:4")
            or pattern.endswith("rows")
            or pattern == f"tiles of 128 rows{ORDERED}"
        ):
            why.write_masks(pattern, own)
    print(f"{options.out}/why.jsonl: {sum(map(len, found.values()))} matrices", flush=True)


if __name__ == "__main__":
    main()

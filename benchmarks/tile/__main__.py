"""Tiles, and 2:4 inside tiles, over cuBLAS: five large layers, twelve.

    python -m benchmarks.tile suite > tile.toml
    prunecast validate --suite tile.toml --record RUN.csv --seconds 460     # on a GPU: checked, then timed
    python -m benchmarks.tile report RUN.csv
    python -m benchmarks.tile report                    # the records of 2026-11-21 and -23 that pages quote
    python -m benchmarks.tile report --height 128       # the same, tiles of 128 rows only

Tiles keep as many columns as each other, those of TVW as many as chance gives, 1 to 4 % apart, as maps that
are pruned from random weights do. The faster of tiles of 128 and of 256 rows counts, which is the pruner's to
choose, and the faster of cuBLAS's two layouts. All columns kept, one full tile among equal ones, and 16
tokens are among the rows.
"""

import argparse
import json
import math
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from benchmarks.tile.cases import LARGE, LAYERS
from prunecast.launch import USUAL
from prunecast.validation.records import Measurement, read_runs

TILES = 'pattern = ["tile-wise:128", "tile-wise:256"]\nkernels = ["stspmm"]\n'
PRODUCTS = (
    'pattern = ["dense"]\nkernels = ["dense"]\n',
    f"{TILES}sparsity = [0.0, 0.5, 0.75, 0.9]\n",
    'pattern = ["tvw:128", "tvw:256"]\nkernels = ["2:4"]\n'
    'sparsity = [0.75, 0.875]\ndistribution = ["random"]\n',
)
"""What runs on every layer."""

PATTERNS = {"dense": "dense", "stspmm": "tile-wise", "2:4": "tvw"}
Layer = tuple[int, int, int]
Speedups = dict[tuple[str, float], dict[Layer, float]]
MEASURED = Path(__file__).parents[1] / "measured"
QUOTED = ("h200-sxm-tile-kernel-2026-11-21.json", "h200-sxm-two-of-four-2026-11-23.json")
"""Records of tiles, and of 2:4 in tiles with the closed form's time of each plan, which chooses one."""


def suite() -> str:
    """The cases as `prunecast validate --suite` reads them."""
    tables = [(layer, product) for layer in LAYERS for product in PRODUCTS]
    tables.append(((4096, 4096, 4096), f'{TILES}sparsity = [0.75]\ndistribution = ["one-full"]\n'))
    tables += [((11008, 4096, 16), each) for each in (PRODUCTS[0], f"{TILES}sparsity = [0.75]\n")]
    products = (f"[[product]]\nshapes = [[{m}, {k}]]\nn = [{n}]\n{text}" for (m, k, n), text in tables)
    return "\n".join(['schema = 1\nname = "tile"\n', *products])


def speedups(rows: Iterable[Measurement]) -> Speedups:
    """Kernel and sparsity -> layer -> dense time over that of its faster tiles, of rows that count."""
    seconds: dict[tuple[str, float], dict[Layer, float]] = {}
    for row in rows:
        case = row.case
        kind = PATTERNS.get(row.kernel), case.pattern.partition(":")[0]
        odd = case.distribution not in ("equal", "random") or (case.conditions, case.dtype) != (USUAL, "fp16")
        if row.usable and row.seconds and kind[0] == kind[1] and not odd:
            own = seconds.setdefault((row.kernel, case.sparsity), {})
            layer = (case.m, case.k, case.n)
            own[layer] = min(own.get(layer, math.inf), row.seconds)
    dense = seconds.pop(("dense", 0.0), {})
    return {
        key: {layer: dense[layer] / time for layer, time in own.items() if layer in dense}
        for key, own in sorted(seconds.items())
    }


def quoted_speedups(heights: Collection[int] = (128, 256)) -> Speedups:
    """Return the same for the records that pages quote, over tiles of the given heights in rows.

    Each row of these records has its own dense time.
    """
    tiles, halves = (json.loads((MEASURED / name).read_text())["cases"] for name in QUOTED)
    rows = [
        ("stspmm", 1.0 - row["case"]["density"], row["layer"].split("x"), row["burst"]["speedup"])
        for row in tiles
        if row["case"]["kept"] == "equal" and row["case"]["rows"] in heights
    ]
    chosen: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in (row for row in halves if row["kind"] == "pruned" and row["height"] in heights):
        key = (*row["layer"], row["sparsity"], row["height"])
        chosen[key] = min(row, chosen.get(key, row), key=lambda one: one["model_us"])
    rows += [("2:4", row["sparsity"], row["layer"], row["dense_us"] / row["us"]) for row in chosen.values()]
    found: Speedups = {}
    for kernel, sparsity, sizes, speedup in rows:
        own = found.setdefault((kernel, round(sparsity, 3)), {})
        m, k, n = map(int, sizes)
        own[m, k, n] = max(own.get((m, k, n), 0.0), speedup)
    return dict(sorted(found.items()))


def report(found: Speedups) -> None:
    """A line for every layer, then geometric means."""
    for (kernel, sparsity), own in found.items():
        for layer in (layer for layer in own if layer in LAYERS or layer[2] == 16):
            print(f"{kernel:7} {sparsity:6.1%} {'x'.join(map(str, layer)):18} {own[layer]:5.2f}")
    for (kernel, sparsity), own in found.items():
        for title, layers in (("five large", LARGE), ("twelve", LAYERS)):
            those = [own[layer] for layer in layers if layer in own]
            if those:
                mean = math.exp(sum(map(math.log, those)) / len(those))
                print(f"{kernel} {sparsity:.1%} sparse, {title}: {mean:.2f} ({len(those)} measured)")


def main() -> None:
    """Write the suite, or report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("suite", "report"))
    parser.add_argument("record", nargs="?", help="of prunecast validate")
    heights = (128, 256)
    parser.add_argument("--height", type=int, choices=heights, help="without a record: tiles of so many rows")
    options = parser.parse_args()
    if options.what == "suite":
        print(suite())
    elif options.record is None:
        report(quoted_speedups((options.height,) if options.height else heights))
    else:
        report(speedups(row for run in read_runs(options.record) for row in run.rows))


if __name__ == "__main__":
    main()

"""Clock stamps item by item: what the end of one item and the start of the next cost, in full waves.

    python -m benchmarks.gpu_items build FOLDER          without a GPU: cubins with and without stamps
    python -m benchmarks.gpu_items run FOLDER --out DIR  DIR/items.npz, DIR/items.json

The sources are those of the package with stamps written in, as in `gpu_trace`. Rows of a tile follow one
another in C, where the copy engine stores them, or are scattered, where warps do. Some builds store nothing.
What the stamps are called is in `stamps/items_patches.py`.
"""

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.own_kernels import build_beside, build_own, compile_own, defines_of, entry_of, source_of
from benchmarks.stamps.items_cases import CASES, Waves, plan_of
from benchmarks.stamps.items_patches import HEAD, ITEM, ITEMS_AT, MACRO, MOST_ITEMS, PLAIN, STAMPED, WORDS
from benchmarks.stamps.run import build_or_run, parser_of
from benchmarks.stamps.sources import compile_from, plain_and_stamped
from prunecast.kernels import KernelPlan
from prunecast.kernels.cuda.forms import ARCH


def _cubin_name(case: Waves, stamped: bool) -> str:
    form = f"{case.kernel}-{case.form[0]}x{case.form[1]}"
    return f"{form}-{'stores' if case.stores else 'nothing'}-{'stamped' if stamped else 'plain'}.cubin"


def build_all(folder: Path) -> None:
    """Compile every form with and without stamps into FOLDER, and the package's own into its cache."""
    os.environ["PRUNECAST_CACHE"] = str(folder / "cache")
    build_beside()
    sources = plain_and_stamped(folder, PLAIN, STAMPED, MACRO)
    for case in (case for cases in CASES.values() for case in cases()):
        plan = plan_of(case)
        build_own(plan)
        for stamped, source in sources.items():
            target = folder / _cubin_name(case, stamped)
            if target.exists():
                continue
            changed = {**defines_of(plan), "STORES_NOTHING": int(not case.stores)}
            kernel = compile_from(source, source_of(plan), ARCH, changed)
            shutil.copy(kernel.cubin, target)
            print(target.name, kernel.registers, kernel.spill_bytes, flush=True)


def _run(case: Waves, folder: Path, stream: Any, turns: int) -> tuple[dict[str, Any], np.ndarray]:
    """Seconds with and without stamps, and the stamps of the last two launches, the last one last."""
    from benchmarks.stamps.timing import random_weights, record_of, rotating_arrays, time_stamped
    from prunecast.kernels.cuda.layer_operator import load_kernel

    plan = plan_of(case)
    weights = random_weights(plan)
    first = compile_own(plan, weights)
    plain, traced = (
        load_kernel(folder / _cubin_name(case, stamped), entry_of(plan), plan.resources.shared_bytes)
        for stamped in (False, True)
    )
    arrays = rotating_arrays(plan, fewest=3)
    wrong = _error(first, plan, weights, arrays.bs[0], arrays.cs[0]) if case.scattered else 0.0
    timed = time_stamped(stream, first, traced, arrays, words=WORDS, launches=2, turns=turns, plain=plain)
    return {**record_of(case, plan, timed), "wrong": wrong}, timed.stamps


def _error(operator: Any, plan: KernelPlan, weights: np.ndarray, b: Any, c: Any) -> float:
    """Largest error of 64 rows over the largest value: maps with scattered rows are not of the suite."""
    import cupy as cp

    operator(b, out=c)
    tiles = plan.tiles
    rows = tiles.row_index[:64]
    columns = tiles.column_index[: tiles.column_start[1]]
    own = cp.asarray(weights[np.ix_(rows, columns)].astype(np.float16)).astype(cp.float32)
    wanted = own @ b[cp.asarray(columns)].astype(cp.float32)
    return float(cp.abs(c[cp.asarray(rows)].astype(cp.float32) - wanted).max() / cp.abs(wanted).max())


def _line(record: dict[str, Any], stamps: np.ndarray) -> str:
    """Of the last launch, cycles: means over the blocks that have the item."""
    last = stamps[-1]
    cells = []
    for nth in range(MOST_ITEMS):
        item = last[:, ITEMS_AT + 8 * nth : ITEMS_AT + 8 * nth + 8]
        item = item[item[:, ITEM["first_full"]] > 0]
        if item.size == 0:
            break
        before = last[: item.shape[0], HEAD["may_read"]]
        until = int((item[:, ITEM["first_full"]] - before).mean())
        multiplied = int((item[:, ITEM["multiplied"]] - item[:, ITEM["first_full"]]).mean())
        taken = int((item[:, ITEM["taken"]] - item[:, ITEM["multiplied"]]).mean())
        cells.append(f"{until}+{multiplied}+{taken}")
    us, mhz = record["us"], record["mhz"]
    return (
        f"{record['name']:48s} {us:7.2f} us {record['traced_us']:7.2f} traced {mhz:5.0f} MHz"
        f" {us * mhz:8.0f} cycles wrong {record['wrong']:.4f} | {' '.join(cells)}"
    )


def main() -> None:
    """Build or run."""
    parser = parser_of(__doc__, seconds=80.0, turns=3)
    parser.add_argument("--cases", choices=tuple(CASES), default="items")
    options = parser.parse_args()
    wanted = CASES[options.cases]()
    build_or_run(options, build=build_all, cases=wanted, run=_run, line=_line, name="items")


if __name__ == "__main__":
    main()

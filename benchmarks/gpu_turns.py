"""Clock stamps of both multiplying warpgroups and the producer, item by item: who stores, who multiplies.

    python -m benchmarks.gpu_turns build FOLDER          without a GPU: cubins with and without stamps
    python -m benchmarks.gpu_turns run FOLDER --out DIR  DIR/turns.npz, DIR/turns.json

Tiles of 256 x 128 on the sparse tensor cores. The sources are those of the package with stamps written in, as
in `gpu_trace`. C is stored as always, into 4,096 tokens of it whatever the item (so that L2 holds it), or
only parked in shared memory and read back. (Were it left out, the compiler would leave out products too.)
What the stamps are called is in `stamps/turns_patches.py`.
"""

import os
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.own_kernels import build_beside, build_own, compile_own, defines_of, entry_of, source_of
from benchmarks.stamps.products import made_up_tiles, whole_items
from benchmarks.stamps.run import build_or_run, parser_of
from benchmarks.stamps.sources import compile_from, plain_and_stamped
from benchmarks.stamps.turns_patches import GROUPS_AT, MACRO, MOST_ITEMS, PLAIN, STAMPED, STORES, WORDS
from prunecast.kernels import KernelPlan
from prunecast.kernels.cuda.forms import ARCH

FORM = (256, 128)


class Turns(NamedTuple):
    """Equal tiles of 256 x 128 that keep all of K."""

    row_tiles: int
    ranges: int
    """Of tokens."""
    steps: int
    stores: str = "stored"
    blocks: int = 132
    hot: bool = False
    """One set of inputs over and over, so that L2 holds B."""
    fence: bool = True
    """Before a full stage is multiplied; without it the kernel is not right by the book."""
    gathers: bool = True
    """Rows of B are copied; else what lies in shared memory is multiplied."""

    @property
    def name(self) -> str:
        """Unique."""
        words = [f"{self.row_tiles}x{self.ranges} steps{self.steps} blocks{self.blocks}"]
        return " ".join(
            [
                *words,
                self.stores,
                *["hot"] * self.hot,
                *["nofence"] * (not self.fence),
                *["nogather"] * (not self.gathers),
            ]
        )


def plan_of(case: Turns) -> KernelPlan:
    """Lists of whole items."""
    kept = np.full(case.row_tiles, 64 * case.steps)
    tiles = made_up_tiles(FORM[0], kept, 64 * case.steps, np.random.default_rng(5))
    return whole_items("sparse", FORM, tiles, case.ranges, blocks=case.blocks)


def cases() -> list[Turns]:
    """The most telling first, should time run out."""
    found = [Turns(4, 256, 4, stores) for stores in STORES]
    found += [Turns(*shape, fence=False) for shape in ((4, 256, 4), (8, 128, 2), (8, 32, 8), (4, 33, 4))]
    found += [Turns(4, 256, 4, "aliased", hot=True), Turns(4, 64, 4, blocks=33), Turns(4, 2, 4, blocks=1)]
    found += [Turns(4, 256, 4, stores, gathers=False) for stores in ("stored", "aliased")]
    found += [Turns(4, 2, 4, blocks=1, gathers=False), Turns(8, 32, 8, gathers=False)]
    found += [Turns(8, 128, 2, stores) for stores in STORES]
    found += [Turns(8, 32, 8, stores) for stores in STORES]
    found += [Turns(4, 64, 4, stores, blocks=33) for stores in ("aliased", "staged")]
    found += [Turns(8, 128, 2, "aliased", hot=True), Turns(8, 32, 8, "aliased", hot=True)]
    found += [Turns(4, 33, 4), Turns(4, 66, 4), Turns(8, 16, 2), Turns(8, 32, 2)]
    found += [Turns(4, 256, steps) for steps in (8, 16)]
    found += [Turns(8, 128, 2, gathers=False)]
    found += [Turns(4, 128, 4, blocks=66), Turns(16, 64, 4), Turns(16, 64, 4, "aliased", hot=True)]
    return found


def _cubin_name(case: Turns, stamped: bool) -> str:
    return f"{case.stores}-{int(case.fence)}{int(case.gathers)}-{'stamped' if stamped else 'plain'}.cubin"


def build_all(folder: Path) -> None:
    """Compile every form with and without stamps into FOLDER, and the package's own into its cache."""
    os.environ["PRUNECAST_CACHE"] = str(folder / "cache")
    build_beside()
    sources = plain_and_stamped(folder, PLAIN, STAMPED, MACRO)
    for case in cases():
        missing = [stamped for stamped in sources if not (folder / _cubin_name(case, stamped)).exists()]
        if missing:
            _build(case, {stamped: sources[stamped] for stamped in missing}, folder)


def _build(case: Turns, sources: dict[bool, Path], folder: Path) -> None:
    """From the sources without and with stamps."""
    plan = plan_of(case)
    build_own(plan)
    changed = {
        **defines_of(plan),
        "STORES": STORES[case.stores],
        "FENCE": int(case.fence),
        "GATHERS": int(case.gathers),
    }
    for stamped, source in sources.items():
        target = folder / _cubin_name(case, stamped)
        kernel = compile_from(source, source_of(plan), ARCH, changed)
        shutil.copy(kernel.cubin, target)
        print(target.name, kernel.registers, kernel.spill_bytes, flush=True)


def _run(case: Turns, folder: Path, stream: Any, turns: int) -> tuple[dict[str, Any], np.ndarray]:
    """Seconds with and without stamps, and the stamps of the last two launches, the last one last."""
    from benchmarks.stamps.timing import random_weights, record_of, rotating_arrays, time_stamped
    from prunecast.kernels.cuda.layer_operator import load_kernel

    plan = plan_of(case)
    first = compile_own(plan, random_weights(plan))
    plain, traced = (
        load_kernel(folder / _cubin_name(case, stamped), entry_of(plan), plan.resources.shared_bytes)
        for stamped in (False, True)
    )
    arrays = rotating_arrays(plan, fewest=3, hot=case.hot)
    timed = time_stamped(stream, first, traced, arrays, words=WORDS, launches=2, turns=turns, plain=plain)
    return record_of(case, plan, timed), timed.stamps


def _line(record: dict[str, Any], stamps: np.ndarray) -> str:
    """Of the last launch: when each warpgroup has the halves of the third item, from its first stage."""
    last = stamps[-1]
    us, mhz = record["us"], record["mhz"]
    traced = f"{record['traced_us']:7.2f} traced"
    line = f"{record['name']:44s} {us:7.2f} us {traced} {mhz:5.0f} MHz {us * mhz:7.0f} |"
    nth = min(2, record["items"] // record["case"]["blocks"] - 1)
    at = GROUPS_AT + 16 * nth
    base = last[:, at]
    cells = [int(np.median(last[:, at + 8 * group + i] - base)) for group in (0, 1) for i in range(5)]
    return f"{line} {cells[:5]} {cells[5:]} item {_item_cycles(last, nth)}"


def _item_cycles(last: np.ndarray, nth: int) -> int:
    """From the second item's first stage to the last one's that is stamped, a piece."""
    starts = last[:, GROUPS_AT : GROUPS_AT + 16 * MOST_ITEMS : 16]
    count = min(int((starts > 0).all(axis=0).sum()), MOST_ITEMS)
    if count < 3:
        return int((starts[:, nth] - starts[:, 0]).mean())
    return int((starts[:, count - 1] - starts[:, 1]).mean() / (count - 2))


def main() -> None:
    """Build or run."""
    options = parser_of(__doc__, seconds=75.0, turns=3).parse_args()
    build_or_run(options, build=build_all, cases=cases(), run=_run, line=_line, name="turns")


if __name__ == "__main__":
    main()

"""How far the two engines are apart on maps drawn at random, by GPU and by kernel.

python -m benchmarks.agreement [--cases 10] [--first 0] [--gpus h200-sxm t4] [--kernels stspmm]
    [--rows 20] [--processes 16] [--seconds 500]

Both engines time the same plan, so a difference of more than 10 % is an error of one of them. The draws
include shapes that recorded suites lack: tiles of 1 to 4096 rows, a single tile, empty tiles, K = 100,000,
one token. With `--seconds` no case begins later, so that a draw ends in time whatever its size; cases are in
the order of their seeds, and the table counts those that were timed.
"""

import argparse
import math
import random
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import NamedTuple

import numpy as np

from prunecast.choice import fastest_plan
from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.kernels import KERNELS, KernelPlan, PlanDoesNotFit
from prunecast.models import estimate
from prunecast.patterns import ElementMap, TileMap, element_map_from_mask
from prunecast.patterns.plain import DENSE_TILE_HEIGHT
from prunecast.patterns.tiling import dense_tile_map
from prunecast.workload.engines import simulate

GPUS = ("h200-sxm", "h100-sxm", "b200", "a100-sxm4-40gb", "rtx-4090", "v100-sxm2-16gb", "t4", "gtx-1080-ti")
SINGLE = tuple(name for name, kernel in KERNELS.items() if not kernel.parts)
"""Kernels of one launch."""
NEAR, FAR = 0.10, 0.25
"""Relative differences that are counted. Kind: definition."""
HEIGHTS = (1, 8, 16, 32, 64, 128, 200, 256, 1024, 4096)
"""Rows of a tile that are drawn."""
MOST_OF_ELEMENTS, MOST_OF_TILES = 1 << 29, 1 << 33
"""Kept elements times tokens up to which a case of single elements, or of tiles and 2:4, is drawn: a
simulation then needs seconds at most."""


class Case(NamedTuple):
    """One layer, what is kept of it, and the kernel and GPU that multiply it."""

    gpu: str
    kernel: str
    shape: str
    """One of `SHAPES`."""
    m: int
    k: int
    n: int
    height: int
    density: float
    seed: int

    @property
    def dtype(self) -> str:
        """Half precision where the GPU has tensor cores for it."""
        return "fp16" if load_gpu(self.gpu).tensor_fp16_fma_per_clk_per_sm else "fp32"

    def plan(self) -> KernelPlan:
        """Raise BadInput or PlanDoesNotFit if the kernel does not run it."""
        gpu = load_gpu(self.gpu)
        return fastest_plan(self.kernel, self.kept(), self.n, self.dtype, gpu)

    def kept(self) -> TileMap | ElementMap:
        """The map that the kernel multiplies, by its natural pattern."""
        kernel, rng = KERNELS[self.kernel], np.random.default_rng(self.seed)
        if kernel.natural_pattern == "dense":
            return dense_tile_map(self.m, self.k, DENSE_TILE_HEIGHT)
        if kernel.takes is TileMap:
            return _tiles(self, rng)
        if kernel.natural_pattern == "2:4":
            place = rng.random((self.m, self.k // 4, 4)).argsort(axis=2)
            return element_map_from_mask((place < 2).reshape(self.m, -1), "2:4")
        if kernel.natural_pattern.startswith("balanced"):
            bank = min(self.height, 64)
            kept = max(round(self.density * bank), 1)
            place = rng.random((self.m, self.k // bank, bank)).argsort(axis=2)
            return element_map_from_mask((place < kept).reshape(self.m, -1), f"balanced:{bank}")
        return element_map_from_mask(rng.random((self.m, self.k)) < self.density, "unstructured")


def _tiles(case: Case, rng: np.random.Generator) -> TileMap:
    """Tiles of `height` rows; equal for block-sparse, else as the shape says."""
    in_blocks = KERNELS[case.kernel].natural_pattern.startswith("block")
    height = 64 if in_blocks else min(case.height, case.m)
    tiles = 0 if case.shape == "no tile" else 1 if case.shape == "one tile" else -(-case.m // height)
    share = np.full(tiles, case.density)
    if not in_blocks:
        share = np.clip(share * rng.lognormal(0.0, 0.5, tiles), 0.0, 1.0)
    if case.shape == "half empty":
        share[rng.random(tiles) < 0.5] = 0.0
    kept = np.rint(share * case.k).astype(int)
    if in_blocks:
        blocks = rng.random((tiles, case.k // 64)) < share[:, None]
        columns = [np.flatnonzero(np.repeat(own, 64)) for own in blocks]
        kept = np.array([own.size for own in columns], int)
    else:
        columns = [np.sort(rng.choice(case.k, count, replace=False)) for count in kept]
    rows = min(tiles * height, case.m)
    return TileMap(
        m=case.m,
        k=case.k,
        row_start=np.minimum(np.arange(tiles + 1) * height, rows),
        row_index=np.arange(rows),
        column_start=np.concatenate(([0], np.cumsum(kept))).astype(int),
        column_index=np.concatenate([np.zeros(0, int), *columns]),
        pattern="block:64x64" if in_blocks else f"tile-wise:{height}",
    )


SHAPES = (
    "plain",
    "plain",
    "plain",
    "one tile",
    "no tile",
    "half empty",
    "odd",
    "tall",
    "flat",
    "one token",
    "long",
)
"""Shapes that are drawn, as often as they stand here."""


def drawn(gpu: str, kernel: str, seed: int) -> Case:
    """Draw a case; sizes are multiples of 64, M of an odd case is 129."""
    draw = random.Random(f"{gpu} {kernel} {seed}")
    shape = draw.choice(SHAPES)
    m, k = (64 * round(2 ** draw.uniform(1, 6)) for _ in range(2))
    n = draw.choice((1, 8, 16, 64, 128, 256, 512, 1024, 2048, 4096))
    if shape == "odd":
        m = 129
    elif shape == "tall":
        m, k = 8192, 256
    elif shape == "flat":
        m, k = 128, 8192
    elif shape == "one token":
        n = 1
    elif shape == "long":
        m, k = 256, 100_096
    record, density = KERNELS[kernel], draw.choice((0.1, 0.25, 0.4, 0.5, 0.75))
    n = min(n, record.most_tokens or n)
    single = record.takes is ElementMap and record.natural_pattern != "2:4"
    most = MOST_OF_ELEMENTS if single else MOST_OF_TILES
    while n > 1 and m * k * n * density > most:
        n //= 2
    return Case(gpu, kernel, shape, m, k, n, draw.choice(HEIGHTS), density, seed)


class Pair(NamedTuple):
    """Seconds of one case by both engines."""

    case: Case
    closed_form: float
    simulated: float

    @property
    def apart(self) -> float:
        """Logarithm of closed form over simulator."""
        return math.log(self.closed_form / self.simulated)

    def within(self, share: float) -> bool:
        """Whether the slower time is at most 1 + `share` times the faster one."""
        return abs(self.apart) <= math.log1p(share)

    def line(self) -> str:
        """The case in one line."""
        times = f"{1e6 * self.closed_form:9.2f} {1e6 * self.simulated:9.2f} {math.exp(self.apart):6.2f}"
        case = self.case
        return (
            f"{times}  {case.gpu} {case.kernel} {case.dtype} {case.m} x {case.k} x {case.n}"
            f" height {case.height} density {case.density} seed {case.seed}, {case.shape}"
        )


def timed(case: Case) -> Pair | None:
    """Time a case by both engines; None if the kernel does not run it on the GPU."""
    try:
        plan = case.plan()
        gpu = load_gpu(case.gpu)
        return Pair(case, estimate(plan, gpu).seconds, simulate(plan, gpu).seconds)
    except (BadInput, PlanDoesNotFit):
        return None


def _timed_until(case: Case, stop: float) -> Pair | None:
    """Time a case as `timed` does; None if the monotonic clock is already beyond `stop` seconds."""
    return timed(case) if time.monotonic() < stop else None


def pairs(cases: Iterable[Case], processes: int = 1, seconds: float = math.inf) -> list[Pair]:
    """Time the cases that their kernel runs on their GPU, in order.

    Parameters
    ----------
    processes : number of processes that share the cases
    seconds : time after which no case begins
    """
    cases, stop = list(cases), time.monotonic() + seconds
    if processes == 1:
        found = [_timed_until(case, stop) for case in cases]
    else:
        with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
            found = list(pool.map(_timed_until, cases, [stop] * len(cases)))
    return [pair for pair in found if pair is not None]


def summary(name: str, found: list[Pair]) -> str:
    """Counts of one group of pairs in one line."""
    if not found:
        return f"{name:>16}     0"
    near, far = (sum(pair.within(share) for pair in found) for share in (NEAR, FAR))
    apart = np.array([pair.apart for pair in found])
    return (
        f"{name:>16} {len(found):5d} {100 * near / len(found):7.1f} {100 - 100 * far / len(found):7.1f}"
        f" {100 * np.expm1(np.median(apart)):+7.1f} {math.exp(np.abs(apart).max()):7.2f}"
    )


def main() -> None:
    """Draw, time and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=10, help="draws of each kernel on each GPU")
    parser.add_argument("--first", type=int, default=0, help="seed of the first draw")
    parser.add_argument("--gpus", nargs="*", default=list(GPUS))
    parser.add_argument("--kernels", nargs="*", default=list(SINGLE), choices=SINGLE)
    parser.add_argument("--rows", type=int, default=0, help="cases to show, the farthest apart first")
    parser.add_argument("--processes", type=int, default=1, help="processes that share the cases")
    parser.add_argument("--seconds", type=float, default=math.inf, help="no case begins later")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.cases)
    cases = [drawn(gpu, kernel, seed) for seed in seeds for gpu in options.gpus for kernel in options.kernels]
    found = pairs(cases, options.processes, options.seconds)
    for pair in sorted(found, key=lambda pair: -abs(pair.apart))[: options.rows]:
        print(pair.line())
    print(f"{'':>16} {'cases':>5} {'<= 10 %':>7} {'> 25 %':>7} {'median':>7} {'worst':>7}")
    for kernel in options.kernels:
        print(summary(kernel, [pair for pair in found if pair.case.kernel == kernel]))
    for gpu in options.gpus:
        print(summary(gpu, [pair for pair in found if pair.case.gpu == gpu]))
    print(summary("all", found))


if __name__ == "__main__":
    main()

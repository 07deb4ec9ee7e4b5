"""Step time of a block that has the GPU to itself: simulator against closed form, configs of the tile kernel.

Operands are in L2. A step's cycles are the difference between runs of 64 and of 32 k-steps, by which the
edges of the block drop out. One meaning of warp programs makes both engines equal.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from prunecast.hardware import GpuSpec, load_gpu
from prunecast.kernels.tile.config import TileConfig
from prunecast.kernels.tile.configs import tile_configs
from prunecast.kernels.tile.tile_plan import plan_tile_wise
from prunecast.launch import CacheState
from prunecast.models import estimate
from prunecast.patterns import TileMap
from prunecast.plan.kernel_plan import KernelPlan
from prunecast.simulator import simulate

GPUS = ("h200-sxm", "a100-sxm4-80gb", "v100-sxm2-32gb")
STEPS = (32, 64)
WARM = CacheState("warm")
TALLEST = 256
"""Rows of tiles, which no block of the kernel exceeds. Kind: choice."""


class StepTime(NamedTuple):
    """Cycles of a k-step of one config on one GPU."""

    gpu: str
    shape: str
    engine: float
    closed_form: float

    @property
    def ratio(self) -> float:
        """Closed form over engine."""
        return self.closed_form / self.engine


def step_times() -> Iterator[StepTime]:
    """Step times of all configs of the tile kernel in fp16 on three GPUs."""
    for gpu in map(load_gpu, GPUS):
        for config in tile_configs(gpu, "fp16", TALLEST):
            fewer, more = (lone_block(config, steps, gpu) for steps in STEPS)
            count = STEPS[1] - STEPS[0]
            engine = simulate(more, gpu, l2=WARM).cycles - simulate(fewer, gpu, l2=WARM).cycles
            closed_form = estimate(more, gpu, l2=WARM).cycles - estimate(fewer, gpu, l2=WARM).cycles
            shape = "x".join(str(size) for size in config.shape[:3])
            yield StepTime(gpu.name, shape, engine / count, closed_form / count)


def lone_block(config: TileConfig, steps: int, gpu: GpuSpec) -> KernelPlan:
    """Plan one tile and one token range: a single block of `steps` k-steps."""
    rows, kept = config.shape.block_m, steps * config.shape.block_k
    columns = np.sort(np.random.default_rng(0).permutation(2 * kept)[:kept])
    tiles = TileMap(
        m=rows,
        k=2 * kept,
        row_start=np.array([0, rows]),
        row_index=np.arange(rows),
        column_start=np.array([0, kept]),
        column_index=columns,
        pattern=f"tile-wise:{rows}",
    )
    return plan_tile_wise(tiles, config.shape.block_n, "fp16", gpu, config)


def most_apart(times: list[StepTime]) -> dict[str, int]:
    """Largest difference of the engines on each GPU, by title."""
    apart: dict[str, int] = {}
    for one in times:
        title = f"{one.gpu}, per mille"
        apart[title] = max(apart.get(title, 0), round(1000.0 * abs(one.ratio - 1.0)))
    return apart


def print_step_times(times: list[StepTime]) -> None:
    """Print a row for each config."""
    print(
        "\n| GPU | config | engine, cycles a step | closed form | off |\n| --- | --- | ---: | ---: | ---: |"
    )
    for one in times:
        off = 100.0 * (one.ratio - 1.0)
        print(f"| {one.gpu} | {one.shape} | {one.engine:.0f} | {one.closed_form:.0f} | {off:+.1f} % |")

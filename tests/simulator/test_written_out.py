"""DRAM writes no more of C than there is, however often rows of B come again."""

from dataclasses import replace

import numpy as np
import pytest

from prunecast.choice import fastest_plan
from prunecast.hardware import load_gpu
from prunecast.launch import launch_context
from prunecast.patterns import TileMap
from prunecast.simulator import engine
from prunecast.simulator.simulate import settle

H200 = load_gpu("h200-sxm")


@pytest.mark.parametrize("l2_bytes", [H200.l2_usable_bytes, 400_000])
def test_dram_works_as_long_as_reads_and_c_take(l2_bytes):
    rng = np.random.default_rng(5)
    columns = [np.sort(rng.choice(1024, 192, replace=False)) for _ in range(32)]
    tiles = TileMap(
        m=4096,
        k=1024,
        row_start=np.arange(33) * 128,
        row_index=np.arange(4096),
        column_start=np.arange(33) * 192,
        column_index=np.concatenate(columns),
        pattern="tile-wise:128",
    )
    plan = fastest_plan("stspmm", tiles, 4096, "fp16", H200)
    settled = settle(launch_context(plan, replace(H200, l2_usable_bytes=l2_bytes)), policy="gty")
    chip, machine = settled.run.mem, settled.lowered.machine
    l2_bytes_per_clk = 1024 * engine.TICKS / machine.l2_ticks
    clock_hz = H200.l2_bytes_per_s / l2_bytes_per_clk
    read, c = int(chip[engine.G_MISS_BYTES]), 2 * 4096 * 4096
    seconds = read / H200.dram_bytes_per_s + c / H200.dram_write_bytes_per_s
    assert chip[engine.G_DRAM_BUSY] / engine.TICKS / clock_hz == pytest.approx(seconds, rel=0.03)

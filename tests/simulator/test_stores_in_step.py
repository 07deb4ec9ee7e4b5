"""SMs with producer warps end their blocks together in every wave and share L2's store rate."""

import pytest

from prunecast.plan.program import WarpProgram
from prunecast.simulator import simulate
from tests.models.hand_plans import hand_plan, one_role_programs, two_role_programs
from tests.toy_gpu import toy_gpu

SLOW, ENDLESS = 64e9, 1e15
"""Store rates of L2 in bytes per second: 64 bytes per cycle for all four SMs, and no limit."""


def wave_cycles(programs: tuple[WarpProgram, ...], l2_store_bytes_per_s: float) -> float:
    """Cycles of each of the later waves of equal blocks, one block per SM, whose data are in L2."""
    endless = dict.fromkeys(("dram_bytes_per_s", "dram_write_bytes_per_s", "l2_bytes_per_s"), ENDLESS)
    gpu = toy_gpu(l2_store_bytes_per_s=l2_store_bytes_per_s, l2_store_read_share=0.0, **endless)
    few, many = (
        simulate(hand_plan([64] * gpu.sm_count, 64 * waves, programs=programs, shared_bytes=200_000), gpu)
        for waves in (3, 7)
    )
    return (many.cycles - few.cycles) / 4


@pytest.mark.parametrize(
    ("programs", "longer"), [(two_role_programs(), 8192 / 16 - 8192 / 64), (one_role_programs(4), 0.0)]
)
def test_later_waves_store_at_the_share_of_l2(programs: tuple[WarpProgram, ...], longer: float) -> None:
    """A block stores 8 KiB: 512 cycles at a quarter of 64 bytes per cycle, 128 at the rate of its port."""
    slower = wave_cycles(programs, SLOW) - wave_cycles(programs, ENDLESS)
    assert slower == pytest.approx(longer, abs=4.0)

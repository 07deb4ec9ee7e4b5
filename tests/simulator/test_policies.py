"""The four warp schedulers on runs where the order of issue shows in the cycles.

One SM with one sub-partition; everything that is not said costs nothing. `t: X` reads: X is issued in
cycle t.
"""

import pytest

from prunecast.plan.program import Instruction, Op, WarpProgram
from tests.naive.cases import SIMULATORS, listed, one_role
from tests.naive.records import Item, Kernel, Machine

ISSUE = Instruction(Op.ISSUE)
LONG = 100
"""Latency of shared memory in the runs below: who issues SHARED first ends first."""


def two_warps(old: tuple[Instruction, ...], young: tuple[Instruction, ...]) -> Kernel:
    return Kernel(
        programs=(
            WarpProgram(role="old", warps=1, start=old),
            WarpProgram(role="young", warps=1, start=young),
        )
    )


@pytest.mark.parametrize("simulator", SIMULATORS)
@pytest.mark.parametrize(
    ("policy", "cycles"),
    [
        # 0..3: old, 4: its EXIT, 5 6: young, 7: SHARED, 107: EXIT.
        ("gto", 108),
        ("oldest", 108),
        # 0 1: young, 2: SHARED, 102: EXIT; old fits in between.
        ("gty", 103),
        # 0: old, 1: young, 2: old, 3: young, 4: old, 5: SHARED, 105: EXIT.
        ("lrr", 106),
    ],
)
def test_who_goes_first(simulator: str, policy: str, cycles: int) -> None:
    kernel = two_warps((ISSUE,) * 4, (ISSUE, ISSUE, Instruction(Op.SHARED)))
    machine = Machine(partitions=1, policy=policy, shared_latency=LONG)
    assert SIMULATORS[simulator](machine, kernel, listed(Item(k_count=0))).cycles == cycles


@pytest.mark.parametrize("simulator", SIMULATORS)
@pytest.mark.parametrize(
    ("policy", "cycles"),
    [
        # 0: old FMA, ready at 3. 1..6: young stays on, 7: its EXIT. 8: old SHARED, 108: EXIT.
        ("gto", 109),
        # 0: old FMA. 1 2: young. 3: old SHARED, 103: EXIT.
        ("oldest", 104),
        # 0..5: young, 6: its EXIT. 7: old FMA, ready at 10. 10: SHARED, 110: EXIT.
        ("gty", 111),
        # 0: old FMA. 1 2: young. 3: old, who stands behind young in the round. 103: EXIT.
        ("lrr", 104),
    ],
)
def test_who_stays_on_when_another_wakes_up(simulator: str, policy: str, cycles: int) -> None:
    kernel = two_warps((Instruction(Op.FMA), Instruction(Op.SHARED)), (ISSUE,) * 6)
    machine = Machine(partitions=1, policy=policy, shared_latency=LONG, fma_ticks=3 * 4096)
    assert SIMULATORS[simulator](machine, kernel, listed(Item(k_count=0))).cycles == cycles


@pytest.mark.parametrize("simulator", SIMULATORS)
@pytest.mark.parametrize(
    ("policy", "not_selected"),
    [
        # Blocks 0 and 1 in slots 0 and 1; block 2 takes slot 0 when block 0 retires.
        # 0: block 0, 1: its EXIT; block 2 is ready at 2, but block 1 is older: 2: its ISSUE, 3..7: its step,
        # 8: EXIT. 9: block 2, 10: EXIT. Block 1 stood from 0 to 2, block 2 from 2 to 9.
        ("gto", 2 + 7),
        ("oldest", 2 + 7),
        # 0: block 1, 1..5: its step, 6: EXIT. 7: block 2, in slot 1, is younger than block 0, 8: EXIT.
        # 9: block 0, 10: EXIT. Block 0 stood from 0 to 9.
        ("gty", 9),
        # 0: block 0, 1: block 1, 2: block 0's EXIT. At 3 slot 1 comes behind slot 0, which block 2 now holds:
        # 3..7: block 1's step, 8: block 2, 9: block 1's EXIT, 10: block 2's EXIT.
        # Block 0 stood one cycle, block 1 three times one, block 2 five and one.
        ("lrr", 1 + 3 + 6),
    ],
)
def test_a_new_block_in_the_slot_of_the_last_issuer(simulator: str, policy: str, not_selected: int) -> None:
    kernel = one_role(start=(ISSUE,), step=(Instruction(Op.ISSUE, issue=5),))
    work = listed(Item(k_count=0), Item(k_count=16), Item(k_count=0))
    machine = Machine(partitions=1, slots=2, policy=policy)
    result = SIMULATORS[simulator](machine, kernel, work)
    assert result.stalls["not selected"] == not_selected

"""Physics as laws on layers drawn at random for eight GPUs: sparser, more SMs, more bandwidth are no slower.

Where a prediction may go against a law, `ALLOWED` says by how much and why. `python -m tests.laws` looks at
as many cases as asked, and prints the worst.
"""

import pytest

from prunecast.kernels import KERNELS
from tests.laws import ALLOWED, LAWS, findings_of

DRAWS = {"model": range(4 * len(KERNELS)), "simulator": range(40, 46)}
"""Seeds of each engine: kernel by kernel."""


MENDED = {
    "fewer tokens": (7330, 20002, 30243, 90088),
    "sparser": (5155, 720445, 722353, 881068, 881077),
    "larger L2": (722440,),
    "one launch": (7160,),
    "more SMs": (60443, 61335, 880975),
    "more bandwidth": (880076, 880724, 881487),
}
"""Law -> seeds whose draws were against it before the kernels and their choice were what they are now."""


@pytest.mark.parametrize(("law", "seed"), [(law, seed) for law, seeds in MENDED.items() for seed in seeds])
def test_draws_that_went_against_a_law_do_no_more(law, seed):
    assert [one.line for one in findings_of(seed, "model", (law,)) if one.excess > 0.02] == []


@pytest.mark.parametrize("seed", [870147, 870025, 872149, 870319])
def test_blocks_alone_on_their_sms_do_not_wait_for_dram_in_step(seed):
    """With twice the SMs each block is alone; if all started in one cycle, they were 13 to 30 % slower."""
    assert [one.line for one in findings_of(seed, "simulator", ("more SMs",)) if one.excess > 0.02] == []


def test_blocks_in_turn_do_not_beat_the_busiest_pipe():
    """Samples of three waves once ended 2 % sooner than shared memory allows for five blocks."""
    assert [one.excess <= 0.0 for one in findings_of(61912, "model", ("bounds",))] == [True]


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("engine", DRAWS)
def test_no_draw_goes_against_a_law(engine, law):
    found = [one for seed in DRAWS[engine] for one in findings_of(seed, engine, (law,))]
    assert found or (law, engine) == ("schedulers", "model")
    assert [one.line for one in found if one.is_broken] == []


def test_every_allowance_says_why_and_is_of_a_kernel():
    for (law, kernel), (share, why) in ALLOWED.items():
        assert law in LAWS
        assert kernel in (*KERNELS, "")
        assert 0.0 < share <= 0.3
        assert len(why) > 20

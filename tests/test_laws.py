"""Physics as laws on layers drawn at random for eight GPUs: sparser, more SMs, more bandwidth are no slower.

Where a prediction may go against a law, `ALLOWED` says by how much and why. `python -m tests.laws` looks at
as many cases as asked, and prints the worst.
"""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from prunecast.errors import BadInput
from prunecast.kernels import KERNELS
from prunecast.plan.program import Charge, Instruction, Op
from prunecast.simulator import POLICIES, simulate
from tests import laws
from tests.laws import ALLOWED, ANEW, HARDWARE, LAWS, LESS_WORK, NEW_PLAN, ROUNDING, draw_of, findings_of

DRAWS = {"model": range(4 * len(KERNELS)), "simulator": range(40, 46)}
"""Seeds of each engine: kernel by kernel."""


MENDED = {
    "fewer tokens, new plan": (7330, 20002, 30243, 90088),
    "sparser": (994016, 994339, 994664, 999199, 1000532),
    "sparser, new plan": (5155, 720445, 722353, 881068, 881077),
    "larger L2, new plan": (722440,),
    "one launch": (7160,),
    # A new plan whose old one gives an SM more work there, and 2:4 tiles whose k-slices were not tried
    "faster L2, new plan": (999667, 1020136, 1024196),
    "more SMs, new plan": (880975,),
    "more bandwidth, new plan": (880076, 880724),
}
"""Law -> seeds whose draws were against it before the kernels and their choice were what they are now."""


@pytest.mark.parametrize(("law", "seed"), [(law, seed) for law, seeds in MENDED.items() for seed in seeds])
def test_draws_that_went_against_a_law_do_no_more(law, seed):
    (found,) = findings_of(seed, "model", (law,))
    assert found.excess <= 0.02, found.line


@pytest.mark.parametrize("seed", [870147, 870025, 872149, 870319])
def test_blocks_alone_on_their_sms_do_not_wait_for_dram_in_step(seed):
    """With twice the SMs each block is alone; if all started in one cycle, they were 13 to 30 % slower."""
    found = findings_of(seed, "simulator", ("more SMs, new plan",))
    assert [one.line for one in found if one.excess > 0.02] == []


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


LAYER = 960311
"""A layer of few items, which is simulated fast. The GPU of its draw is an RTX 4090."""


@cache
def _simulated():
    layer = draw_of(LAYER, "simulator")
    return simulate(layer.plan(), layer.gpu)


def _run(slower, items=1, orders=tuple(POLICIES), spread=0.0):
    """A run that is `slower` on any other GPU than that of the layer, by some orders of warps.

    The order `lrr` is slower by `spread` than others on any GPU.
    """

    def run(plan, gpu, policy="gty"):
        is_better = gpu != draw_of(LAYER, "simulator").gpu
        seconds = _simulated().seconds * (1.0 + slower * (is_better and policy in orders))
        seconds *= 1.0 + spread * (policy == "lrr")
        busiest = np.full(gpu.sm_count, 5 * items if is_better else 5)
        return replace(_simulated(), seconds=seconds, sm_items=busiest)

    return run


@pytest.mark.parametrize("law", HARDWARE)
def test_a_plan_that_is_slower_on_better_hardware_is_found(law):
    layer = draw_of(LAYER, "simulator")
    assert LAWS[law](layer, _run(0.02)) == pytest.approx(0.02)
    assert LAWS[law](layer, _run(0.0)) == 0.0
    assert LAWS[law + NEW_PLAN](layer, _run(0.02)) == pytest.approx(0.02)


def test_a_faster_gpu_may_be_slower_by_some_orders_of_warps_by_no_more_than_they_differ():
    layer, law, all_but_lrr = draw_of(LAYER, "simulator"), LAWS["faster L2"], ("gto", "gty", "oldest")
    assert law(layer, _run(0.05, orders=("gty",), spread=0.06)) == 0.0
    assert law(layer, _run(0.05, orders=all_but_lrr, spread=0.06)) == 0.0
    assert law(layer, _run(0.05, orders=all_but_lrr, spread=0.04)) == pytest.approx(0.04)
    assert law(layer, _run(0.05, spread=0.06)) == pytest.approx(0.05)


def test_a_faster_gpu_is_no_slower_if_both_have_their_best_order_of_warps():
    layer, law = draw_of(LAYER, "simulator"), LAWS["faster L2"]
    # The order changes only the second run, whose best one is as fast as the first run
    assert law(layer, _run(0.05, orders=("gty", "gto"))) == 0.0
    # The second run is faster by `lrr`, but not as fast as the best of the first one
    assert law(layer, _run(0.05, orders=("gty", "gto", "oldest"), spread=0.02)) == pytest.approx(0.02)


def test_instructions_of_many_slots_become_as_many_that_the_scheduler_can_interrupt():
    share, wait = Charge("fma_issue_share", 512, "issue"), Charge("shared_latency_cycles", 4)
    whole = (
        Instruction(Op.ISSUE, 7, 3, charges=(wait,)),
        Instruction(Op.SHARED, 4096, 8),
        Instruction(Op.FMA, issue=512, charges=(share,)),
        Instruction(Op.FMA, issue=2, per_k16=True),
        Instruction(Op.ISSUE, 5, 0),
    )
    single = laws._one_by_one(whole)
    # Only the last instruction waits; instructions with fitted slots remain as they are
    assert single[:3] == (
        Instruction(Op.ISSUE, 0, 1),
        Instruction(Op.ISSUE, 0, 1),
        Instruction(Op.ISSUE, 7, 1, charges=(wait,)),
    )
    assert single[3:] == (*whole[1:3], *[Instruction(Op.FMA, issue=1, per_k16=True)] * 2, whole[4])


@pytest.mark.parametrize(
    ("seed", "law"),
    [
        (982100, "more bandwidth"),
        (985455, "more bandwidth"),
        (984584, "sparser"),
        (982839, "faster L2"),
        (986619, "faster L2"),
    ],
)
def test_the_order_of_warps_explains_runs_that_are_longer_by_the_usual_one(seed, law):
    (found,) = findings_of(seed, "simulator", (law,))
    assert found.excess <= ROUNDING
    layer = draw_of(seed, "simulator")
    better = (HARDWARE | LESS_WORK)[law](layer)
    plan = layer.plan()
    other = better.plan_with(plan.config) if law in LESS_WORK else plan
    assert simulate(other, better.gpu).seconds > (1.0 + ROUNDING) * simulate(plan, layer.gpu).seconds


def test_the_same_config_chosen_anew_is_the_law_of_the_same_config():
    """Shorter tiles begin with other rows of B, for which the longest ones, as long as before, then wait."""
    layer = draw_of(986404, "simulator")
    sparser = ANEW["sparser"](layer)
    assert sparser.plan().config == layer.plan().config
    assert sparser.plan().steps_per_item.max() == layer.plan().steps_per_item.max()
    (found,) = findings_of(986404, "simulator", ("sparser, new plan",))
    assert found.excess <= ROUNDING
    assert simulate(sparser.plan(), layer.gpu).seconds > 1.1 * simulate(layer.plan(), layer.gpu).seconds


@pytest.mark.parametrize("seed", [985759, 985291])
def test_balanced_layouts_are_compared_by_their_bytes_of_shared_memory(seed):
    layer = draw_of(seed, "simulator")
    plan, sparser = layer.plan(), LESS_WORK["sparser"](layer).plan_with(layer.plan().config)
    assert 1.01 < laws._layout_share(plan, sparser) <= 1.02
    assert laws._layout_share(sparser, plan) == 1.0
    twice = [replace(one, step=(*one.step, *one.step)) for one in plan.programs]
    assert laws._layout_share(plan, replace(plan, programs=tuple(twice))) == 1.02
    (found,) = findings_of(seed, "simulator", ("sparser",))
    assert 0.0 < found.excess <= ROUNDING


def test_an_sm_with_six_items_instead_of_five_needs_at_most_six_fifths():
    layer = draw_of(LAYER, "simulator")
    assert LAWS["faster L2"](layer, _run(0.19, items=1.2)) < 0.0
    assert LAWS["faster L2"](layer, _run(0.25, items=1.2)) > ROUNDING
    # Fewer items on the busiest SM excuse nothing
    assert LAWS["faster L2"](layer, _run(0.02, items=0.8)) == pytest.approx(0.02)


def test_schedulers_are_compared_by_equal_items(monkeypatch):
    layer, items = draw_of(LAYER, "simulator"), {"gto": 6, "gty": 5, "lrr": 5, "oldest": 6}
    seconds = {"gto": 1.5, "gty": 1.0, "lrr": 1.1, "oldest": 1.5}

    def run(plan, gpu, policy):
        return replace(_simulated(), seconds=seconds[policy], sm_items=np.full(gpu.sm_count, items[policy]))

    monkeypatch.setitem(laws.ENGINES, "simulator", run)
    assert LAWS["schedulers"](layer, run) == pytest.approx(0.1)
    seconds["oldest"] = 1.2
    assert LAWS["schedulers"](layer, run) == pytest.approx(0.25)


def test_schedulers_are_compared_with_instructions_that_can_be_interrupted(monkeypatch):
    layer = draw_of(LAYER, "simulator")

    def run(plan, gpu, policy):
        return replace(_simulated(), seconds=1.0 if plan is layer.plan() else 1.3)

    monkeypatch.setitem(laws.ENGINES, "simulator", run)
    assert LAWS["schedulers"](layer, run) == pytest.approx(0.3)


@pytest.mark.parametrize("seed", [*range(970000, 970004), 970006, *range(970009, 970013)])
def test_fewer_tokens_leave_out_whole_blocks(seed):
    layer = draw_of(seed, "model")
    block_n = layer.plan().shape.block_n
    if layer.n <= block_n:
        with pytest.raises(BadInput, match="one block of tokens"):
            LESS_WORK["fewer tokens"](layer)
        return
    fewer = LESS_WORK["fewer tokens"](layer).n
    assert 0 < fewer < layer.n
    assert (layer.n - fewer) % block_n == 0
    assert layer.n // 2 <= fewer + block_n


def test_launches_that_overlap_differently_are_not_compared():
    # 128 and 64 blocks, one per SM of an H100: two launches of 64 are resident at once
    layer = draw_of(970000, "model")
    with pytest.raises(BadInput, match="launches overlap differently"):
        LAWS["fewer tokens"](layer, laws.ENGINES["model"])


def test_launches_with_more_k_slices_are_not_compared():
    # 7 slices, then 13
    layer = draw_of(994646, "model")
    with pytest.raises(BadInput, match="tiles have more k-slices"):
        LAWS["fewer tokens"](layer, laws.ENGINES["model"])


@pytest.mark.parametrize("law", ["fewer tokens", "fewer tokens, new plan"])
def test_half_of_the_blocks_of_tokens_in_as_many_k_slices_is_compared(law):
    def slower(plan, gpu, policy="gty"):
        return replace(_simulated(), seconds=1.02 if plan.n < layer.n else 1.0)

    layer = draw_of(991955, "model")
    assert layer.plan().work.parts.max() > 1
    assert LAWS[law](layer, slower) == pytest.approx(0.02)


def test_items_of_unequal_plans_are_not_compared():
    layer = draw_of(LAYER, "simulator")
    small, large = (replace(layer.plan(), shape=layer.plan().shape._replace(block_n=n)) for n in (64, 128))
    better = replace(layer.gpu, l2_bytes=2 * layer.gpu.l2_bytes)
    run = _run(0.19, items=1.2)
    assert laws.longer((small, layer.gpu), (small, better), run) < 0.0
    assert laws.longer((large, layer.gpu), (small, better), run) == pytest.approx(0.19)


def test_longest_items_that_keep_their_work_may_wait_for_rows_that_shorter_ones_loaded():
    # 12 k-steps in both layers; with endless DRAM both need the same time
    layer = draw_of(962572, "simulator")
    plan, run = layer.plan(), laws.ENGINES["simulator"]
    smaller = LESS_WORK["sparser"](layer).plan_with(plan.config)
    assert plan.steps_per_item.max() == smaller.steps_per_item.max()
    assert laws.longer((plan, layer.gpu), (smaller, layer.gpu), run) > ROUNDING
    assert LAWS["sparser"](layer, run) <= 0.0005

    def slower(one, gpu, policy="gty"):
        return replace(_simulated(), seconds=1.0 if one.tiles is plan.tiles else 1.02)

    assert LAWS["sparser"](layer, slower) == pytest.approx(0.02)


def test_each_law_of_hardware_and_of_work_has_one_of_choice():
    assert {name + NEW_PLAN for name in (*HARDWARE, *LESS_WORK)} == {name + NEW_PLAN for name in ANEW}
    assert {*HARDWARE, *LESS_WORK, *(name + NEW_PLAN for name in ANEW)} < set(LAWS)

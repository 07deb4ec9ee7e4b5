"""What of the operands lies in L2: warm is never slower, what fits is found, unknown states are refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.kernels import plan_dense
from prunecast.launch import COLD, CacheState, Conditions, launch_context
from prunecast.launch.conditions import L2_STATES
from prunecast.launch.context import gpu_as_found
from prunecast.models import estimate
from prunecast.simulator import simulate

WARM = CacheState("warm")


@given(m=st.integers(1, 4096), k=st.integers(16, 8192), n=st.integers(1, 512))
def test_what_lies_in_l2_never_makes_a_product_slower(m, k, n):
    gpu = load_gpu("rtx-4090")
    plan = plan_dense(m, k, n, "fp16", gpu)
    seconds = {name: estimate(plan, gpu, l2=CacheState(name)).seconds for name in L2_STATES}
    for found in seconds.values():
        assert seconds["warm"] <= 1.001 * found
        assert found <= 1.001 * seconds["cold"]


@pytest.mark.parametrize("engine", [estimate, simulate])
def test_both_engines_read_small_weights_from_l2(engine):
    gpu = load_gpu("l40s")
    plan = plan_dense(4096, 2048, 16, "fp16", gpu)
    cold, warm = (engine(plan, gpu, l2=l2).seconds for l2 in (COLD, WARM))
    assert warm < 0.6 * cold
    small = engine(plan, gpu, l2=CacheState("model", weight_bytes=5e7)).seconds
    assert small == pytest.approx(warm, rel=0.05)


def test_weights_of_twice_the_l2_are_cold_however_often_they_are_read():
    gpu = load_gpu("t4")
    plan = plan_dense(4096, 4096, 16, "fp16", gpu)
    assert launch_context(plan, gpu, Conditions(l2=WARM)).gpu.dram_bytes_per_s == gpu.dram_bytes_per_s


@pytest.mark.parametrize("name", L2_STATES)
def test_every_state_has_words_of_its_own_and_is_read_back(name):
    conditions = Conditions(l2=CacheState(name))
    others = [Conditions(l2=CacheState(other)).words for other in L2_STATES if other != name]
    assert conditions.words not in others
    assert Conditions.of(conditions.document()) == conditions


def test_a_cold_launch_sees_the_gpu_as_it_is():
    gpu = load_gpu("h200-sxm")
    assert launch_context(plan_dense(64, 64, 64, "fp16", gpu), gpu).gpu is gpu


def test_an_unknown_state_is_refused():
    gpu = load_gpu("t4")
    with pytest.raises(BadInput, match="l2 must be"):
        estimate(plan_dense(64, 64, 64, "fp16", gpu), gpu, l2=CacheState("tepid"))
    with pytest.raises(BadInput, match="no rule for the L2 state 'tepid'"):
        gpu_as_found(plan_dense(64, 64, 64, "fp16", gpu), gpu, CacheState("tepid"))
    with pytest.raises(BadInput, match="state must be"):
        Conditions("idle")
    with pytest.raises(BadInput, match="launch must be"):
        Conditions(launch="alone")

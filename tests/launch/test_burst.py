"""How often launches of few equal blocks lie alone, in pairs and in threes."""

import numpy as np
import pytest

from prunecast.choice import fastest_plan
from prunecast.hardware import load_gpu
from prunecast.launch import burst_contexts, launch_context
from prunecast.models import estimate
from prunecast.patterns import ElementMap, parse_pattern
from prunecast.plan.kernel_plan import KernelPlan
from prunecast.simulator import simulate

H200 = load_gpu("h200-sxm")


def one_token_plan(blocks: int) -> KernelPlan:
    """In fp16, three blocks to an SM."""
    m, k = 16 * blocks, 1024
    order = np.random.default_rng(blocks).random((m, k // 64, 64)).argsort(axis=2)
    elements = parse_pattern("balanced:64").map((order < 6).reshape(m, k))
    assert isinstance(elements, ElementMap)
    return fastest_plan("balanced", elements, 1, "fp16", H200)


@pytest.mark.parametrize(
    ("blocks", "seen"),
    [
        (32, (0.24, 0.57, 0.19)),
        (40, (0.69, 0.28, 0.03)),
        (48, (0.11, 0.17, 0.72)),
        (56, (0.09, 0.27, 0.64)),
    ],
)
def test_shares_of_a_burst_seen_by_clock_stamps(blocks: int, seen: tuple[float, ...]) -> None:
    """Of 240 launches on an H200, 2026-11-21; places change from burst to burst, by as much as a third."""
    placed = burst_contexts(launch_context(one_token_plan(blocks), H200))
    assert sum(share for share, _ in placed) == pytest.approx(1.0)
    found = {each.crowd: share for share, each in placed}
    for crowd, share in enumerate(seen, 1):
        assert found.get(crowd, 0.0) == pytest.approx(share, abs=0.4)


@pytest.mark.parametrize("blocks", [16, 64, 96, 128])
def test_others_lie_in_one_way(blocks: int) -> None:
    context = launch_context(one_token_plan(blocks), H200)
    assert burst_contexts(context) == [(1.0, context)]


def test_what_is_predicted_is_their_mean() -> None:
    """Alone 1.5 us, three on an SM 2.8 us by stamps; nine launches in ten lie in pairs or threes."""
    plan = one_token_plan(48)
    assert all(each.plan is plan for _, each in burst_contexts(launch_context(plan, H200)))
    found = simulate(plan, H200)
    assert sum(found.attribution_s.values()) == pytest.approx(found.seconds)
    assert found.seconds == pytest.approx(found.launch_s + found.cycles / found.clock_hz)
    for engine in (simulate, estimate):
        assert 1.5e-6 < engine(plan, H200).seconds < 2.8e-6

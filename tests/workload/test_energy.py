"""Power and energy of passes: bounds and laws."""

import pytest

from prunecast.codesign import compare_gpus, predict
from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.kernels import plan_dense
from prunecast.models import estimate
from prunecast.simulator import simulate
from prunecast.workload.energy import activity_seconds, plan_activity

H200 = load_gpu("h200-sxm")
MODEL = {"workload": "prefill:1x512", "engine": "model", "kernels": ["stspmm"]}


@pytest.mark.parametrize("size", [(4096, 4096, 4096), (1024, 8192, 256), (4096, 4096, 16)])
def test_both_engines_find_the_same_activity(size):
    plan = plan_dense(*size, "fp16", H200)
    simulated, estimated = (plan_activity(run(plan, H200), H200, "fp16") for run in (simulate, estimate))
    assert estimated == pytest.approx(simulated, rel=0.15)
    assert 0.0 < simulated < 1.5


def test_activity_of_arithmetic_alone_is_its_tensor_time():
    rate = 2.0 * H200.tensor_fp16_fma_per_clk_per_sm * H200.sm_count * H200.clock_burst_hz[0]
    assert activity_seconds(3.0 * rate, 0.0, H200, "fp16") == pytest.approx(3.0)
    assert activity_seconds(0.0, 0.0, H200, "fp16") == 0.0


@pytest.fixture(scope="module")
def whole():
    return predict("llama-3.2-1b", gpu="h200-sxm", price=3.6, **MODEL).whole


def test_power_is_between_idle_and_the_limit_and_pruning_saves_energy(whole):
    (phase,) = whole.phases
    for side in (phase.dense, phase.best):
        assert 0.15 * H200.power_limit_w < side.power.watts < 1.1 * H200.power_limit_w
        assert side.power.seconds >= 0.9 * side.time.seconds
    assert phase.best.power.joules < phase.dense.power.joules


def test_cost_is_the_price_of_the_seconds(whole):
    (phase,) = whole.phases
    million_passes = 1e6 / 512 * phase.best.time.seconds
    assert phase.cost(phase.best, 3.6) == pytest.approx(million_passes * 3.6 / 3600)
    (entry,) = whole.document()["phases"]
    assert entry["best"]["cost_per_million"] == pytest.approx(phase.cost(phase.best, 3.6))
    assert entry["best"]["power"]["watts"] == phase.best.power.watts


def test_prices_of_gpus_that_are_compared():
    rows = compare_gpus("llama-3.2-1b", gpus=["h200-sxm", "l40s"], prices={"l40s": 1.0}, **MODEL).gpus
    costs = {row.gpu: row.cost_per_million for row in rows}
    assert costs["h200-sxm"] is None
    assert costs["l40s"] > 0.0
    assert all(row.joules > 0.0 for row in rows)
    with pytest.raises(BadInput, match="GPU of a price must be one of"):
        compare_gpus("llama-3.2-1b", gpus=["h200-sxm", "l40s"], prices={"a10": 1.0}, **MODEL)


@pytest.mark.parametrize("price", [0.0, -1.0, float("inf"), float("nan")])
def test_a_price_that_is_none_is_refused(price):
    with pytest.raises(BadInput, match=r"price must be (above 0|a number)"):
        predict("llama-3.2-1b", gpu="h200-sxm", price=price, **MODEL)

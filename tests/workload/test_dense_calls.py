"""Dense products that an engine does not run as one launch of cuBLAS."""

import pytest

from prunecast.hardware import load_gpu
from prunecast.kernels.libraries.scaled.call import scaled_product
from prunecast.workload.dense_calls import dense_call
from prunecast.workload.graph.experts import active_experts, fused_call
from prunecast.workload.graph.shapes import Pass
from prunecast.workload.graph.workloads import load_pass

H100 = load_gpu("h100-sxm")
V100 = load_gpu("v100-sxm2-16gb")
SIZES = (512, 1024, 64)
PARTS = [o.experts for o in load_pass("mixtral-8x7b", Pass(16, 1, 1024)) if o.experts is not None]
PRODUCTS = [part for part in PARTS if part.is_product]


@pytest.mark.parametrize("state", ["burst", "sustained"])
def test_an_expert_has_its_share_of_the_grouped_launch_and_of_its_interval(state: str) -> None:
    sizes = PRODUCTS[0].sizes
    whole = fused_call(sizes, H100, "bf16", state)
    assert 0.0 < whole.seconds_low < whole.seconds < whole.seconds_high
    total_s = 0.0
    for part in PRODUCTS:
        found = dense_call(*SIZES, "bf16", H100, state=state, fused=part)
        assert found is not None
        assert found.low_s / found.seconds == pytest.approx(whole.seconds_low / whole.seconds)
        assert found.high_s / found.seconds == pytest.approx(whole.seconds_high / whole.seconds)
        assert (found.bound, found.evidence) == (whole.bound, whole.evidence)
        total_s += found.seconds * active_experts(sizes)
    assert total_s == pytest.approx(whole.parts["gate_up"] + whole.parts["down"])


def test_an_fp8_product_has_the_time_and_the_interval_of_its_library() -> None:
    call = scaled_product(*SIZES, H100, scales="token", state="burst")
    found = dense_call(*SIZES, "fp8", H100, state="burst", scales="token")
    assert found is not None
    assert found[:3] == pytest.approx((call.seconds, call.seconds_low, call.seconds_high))
    assert f"{1e6 * call.parts['quantise']:.3g} us of quantising" in found.note


def test_all_other_products_are_one_launch_of_cublas() -> None:
    """Without scales nothing is quantised, and a GPU without tensor cores for bf16 groups no experts."""
    assert dense_call(*SIZES, "fp8", H100, state="burst") is None
    assert dense_call(*SIZES, "bf16", H100, state="burst", scales="token") is None
    assert dense_call(*SIZES, "bf16", V100, state="burst", fused=PRODUCTS[0]) is None
    assert dense_call(*SIZES, "fp16", V100, state="burst", fused=PRODUCTS[0]) is not None

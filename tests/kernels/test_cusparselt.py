"""The vendor's 2:4 product: what it refuses, in which order it reads weights, which tile is taken."""

import numpy as np
import pytest

from prunecast.choice import fastest_plan, product_of
from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.kernels import run_reference
from prunecast.models import estimate
from prunecast.patterns.element_map import element_map_from_mask
from tests.kernels.layouts import elements_of_density, two_of_four, whole_numbers
from tests.kernels.plan_laws import check_plan
from tests.toy_gpu import toy_gpu


@pytest.mark.parametrize("capability", [80, 89, 90, 100, 120])
def test_it_multiplies_only_the_kept_elements(capability):
    elements = two_of_four(208, 160)
    plan = fastest_plan("cusparselt", elements, 88, "fp16", toy_gpu(compute_capability=capability))
    check_plan(plan)
    mask = elements.mask()
    a, b = whole_numbers(208, 160, 1), whole_numbers(160, 88, 2)
    a[~mask] = np.nan
    np.testing.assert_array_equal(run_reference(plan, a, b), np.where(mask, a, 0.0) @ b)


@pytest.mark.parametrize(
    ("m", "k", "n", "named"), [(200, 160, 88, "rows"), (208, 72, 88, "columns"), (208, 160, 90, "tokens")]
)
def test_sizes_that_the_library_refuses_are_named(m, k, n, named):
    with pytest.raises(BadInput, match=f"cusparselt: {named} must be a multiple"):
        fastest_plan("cusparselt", two_of_four(m, k), n, "fp16", load_gpu("a100-pcie-40gb"))


def test_other_than_2_of_4_is_refused():
    dense = element_map_from_mask(np.ones((64, 64), bool), "2:4")
    with pytest.raises(BadInput, match="row 0 keeps 4 of the four columns"):
        fastest_plan("cusparselt", dense, 64, "fp16", load_gpu("h100-pcie"))
    with pytest.raises(BadInput, match="2:4"):
        fastest_plan("cusparselt", elements_of_density(64, 64, 0.9), 64, "fp16", load_gpu("h100-pcie"))


@pytest.mark.parametrize("name", ["t4", "v100-sxm2-16gb"])
def test_gpus_without_sparse_tensor_cores_are_refused(name):
    with pytest.raises(BadInput, match="needs sparse tensor cores"):
        fastest_plan("cusparselt", two_of_four(64, 64), 64, "fp16", load_gpu(name))


def test_weights_that_l2_cannot_hold_are_read_again_for_each_token_range_before_sm_90():
    gpu = load_gpu("rtx-4090")
    plan = fastest_plan("cusparselt", two_of_four(1024, 256), 1024, "fp16", gpu)
    ranges = plan.work.token_start
    assert np.all(np.diff(ranges) >= 0)
    assert len(set(ranges)) > 1


def test_the_tile_is_the_one_that_the_closed_form_finds_fastest_of_the_near_ones():
    gpu, elements = load_gpu("a100-pcie-40gb"), two_of_four(1024, 512)
    chosen = estimate(fastest_plan("cusparselt", elements, 512, "bf16", gpu), gpu).seconds
    every = [
        estimate(product_of("cusparselt", elements, 512, "bf16", gpu).plan(config), gpu).seconds
        for config in product_of("cusparselt", elements, 512, "bf16", gpu).configs()
    ]
    assert min(every) <= chosen <= 1.1 * min(every)


def test_the_library_alone_multiplies_fp8_and_int8():
    """Through torch 2.11 with its search, H200, 2026-11-23 (`vendors-2026-11-23.csv`)."""
    elements, gpu = two_of_four(4096, 4096), load_gpu("h200-sxm")
    for dtype, us in (("fp8", 33.41), ("int8", 36.02)):
        plan = fastest_plan("cusparselt", elements, 2048, dtype, gpu)
        assert 1e6 * estimate(plan, gpu).seconds == pytest.approx(us, rel=0.1)
        for kernel in ("2:4", "csr", "balanced"):
            with pytest.raises(BadInput, match=f"got {dtype}; int8 and fp8 are for dense and cusparselt"):
                fastest_plan(kernel, elements, 2048, dtype, gpu)

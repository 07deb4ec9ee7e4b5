"""The model on the plans of every kernel: laws that no planner may break."""

import numpy as np
import pytest

import prunecast.models
from prunecast.choice import fastest_plan
from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.models import Quantity, bound_cycles, estimate, plan_amounts
from prunecast.patterns.element_map import element_map_from_mask
from prunecast.patterns.tile_map import TileMap
from prunecast.simulator import simulate
from tests.kernels.layouts import NEED_AMPERE, PLANNED, example_plan
from tests.toy_gpu import toy_gpu

GPUS = ("h200-sxm", "a100-sxm4-80gb", "t4", "toy")
M, K, N = 384, 512, 600


def gpu_named(name):
    return toy_gpu() if name == "toy" else load_gpu(name)


def tiles_of(kept, k=K, height=128):
    rng = np.random.default_rng(5)
    return TileMap(
        m=height * len(kept),
        k=k,
        row_start=np.arange(len(kept) + 1) * height,
        row_index=np.arange(height * len(kept)),
        column_start=np.concatenate(([0], np.cumsum(kept))),
        column_index=np.concatenate([np.sort(rng.choice(k, count, replace=False)) for count in kept]),
        pattern=f"tile-wise:{height}",
    )


def plan_of(kernel, gpu, n=N, density=0.25):
    return example_plan(kernel, M, K, n, gpu, density=density)


CASES = [(kernel, gpu) for kernel in PLANNED for gpu in GPUS if gpu != "t4" or kernel not in NEED_AMPERE]


@pytest.mark.parametrize(("kernel", "gpu_name"), CASES)
def test_no_bound_lies_above_the_estimate(kernel, gpu_name):
    gpu = gpu_named(gpu_name)
    plan = plan_of(kernel, gpu)
    found = estimate(plan, gpu)
    for level, cycles in bound_cycles(plan, gpu, found.clock_hz).items():
        assert 0.0 <= cycles <= found.cycles * (1 + 1e-9), level
    assert found.seconds == pytest.approx(found.launch_s + found.cycles / found.clock_hz)


@pytest.mark.parametrize(("kernel", "gpu_name"), CASES)
def test_every_kept_element_is_multiplied_with_every_token(kernel, gpu_name):
    gpu = gpu_named(gpu_name)
    plan = plan_of(kernel, gpu)
    total = plan_amounts(plan).total
    multiplied = total[Quantity.FMA] + 32 * total[Quantity.FP32]
    assert multiplied >= plan.density * plan.m * plan.k * plan.n
    assert total[Quantity.C] >= plan.m * plan.n * 2 * (1 - 1e-9)


@pytest.mark.parametrize("kernel", ["tile-wise", "stspmm", "csr"])
def test_a_denser_matrix_is_not_faster(kernel):
    gpu = load_gpu("h200-sxm")
    seconds = [estimate(plan_of(kernel, gpu, 4096, density), gpu).seconds for density in (0.1, 0.3, 0.6)]
    assert seconds == sorted(seconds)


def test_splitting_one_full_tile_pays():
    gpu = load_gpu("h200-sxm")
    tiles = tiles_of([4096] + [100] * 31, k=4096)
    whole = estimate(fastest_plan("tile-wise", tiles, 2048, "fp16", gpu), gpu)
    split = estimate(fastest_plan("stspmm", tiles, 2048, "fp16", gpu), gpu)
    assert split.seconds < 0.8 * whole.seconds


@pytest.mark.parametrize("assignment", ["longest-first", "stream-k"])
def test_every_assignment_can_be_estimated(assignment):
    gpu = load_gpu("h200-sxm")
    plan = fastest_plan(
        "stspmm", tiles_of(list(range(64, 512, 14))), 4096, "fp16", gpu, assignment=assignment
    )
    found = estimate(plan, gpu)
    # Owners of stream-k collect what they would not have cut: signals alone take 1250 cycles.
    assert (0.7 if assignment == "stream-k" else 0.8) < found.balance <= 1.0
    assert max(found.bound_cycles.values()) > 0.5 * found.cycles


def test_a_gpu_without_sparse_tensor_cores_is_refused():
    plan = plan_of("2:4", load_gpu("a100-sxm4-80gb"))
    with pytest.raises(BadInput, match="2:4 needs sparse tensor cores, t4 has none"):
        bound_cycles(plan, load_gpu("t4"), 1e9)


def test_everything_public_is_there():
    assert len(set(prunecast.models.__all__)) == len(prunecast.models.__all__)
    for name in prunecast.models.__all__:
        assert hasattr(prunecast.models, name)


def test_all_steps_that_a_block_reads_at_its_begin_are_sampled():
    # One token: warps read the whole column of B before their first step, in 16 steps of 128 rows. Steps
    # beyond those that were sampled would each be taken for one that reads.
    place = np.random.default_rng(5).random((512, 32, 64)).argsort(axis=2)
    kept = element_map_from_mask((place < 32).reshape(512, -1), "balanced:64")
    gpu = load_gpu("h100-sxm")
    plan = fastest_plan("balanced", kept, 1, "fp16", gpu)
    assert estimate(plan, gpu).seconds == pytest.approx(simulate(plan, gpu).seconds, rel=0.1)

"""What each planner decides, what it refuses, and that every GPU of the package gets plans."""

import subprocess
import sys

import numpy as np
import pytest

from prunecast.choice import fastest_plan
from prunecast.errors import BadInput
from prunecast.hardware.load import gpu_names, load_gpu
from prunecast.hardware.occupancy import occupancy
from prunecast.kernels import (
    KERNELS,
    PlanDoesNotFit,
    Schedule,
    plan_csr,
    plan_dense,
    plan_sparse_tensor,
    plan_stspmm,
)
from prunecast.kernels.tile.configs import sparse_configs, tile_configs
from prunecast.kernels.tile.tile_plan import _steps_are_slabs
from prunecast.patterns.element_map import ElementMap, element_map_from_mask
from prunecast.plan.kernel_plan import KernelPlan
from prunecast.plan.program import Op
from tests.kernels.layouts import (
    NEED_AMPERE,
    PLANNED,
    elements_of_density,
    example_plan,
    tiles_keeping,
    tiles_of_density,
    two_of_four,
)
from tests.kernels.plan_laws import check_plan
from tests.toy_gpu import toy_gpu

M, K, N = 256, 192, 104
ON_CUDA_CORES = tuple(
    name
    for name in PLANNED
    if KERNELS[name].natural_pattern != "2:4"
    and any("fp32" in e.dtypes for e in KERNELS[name].compilers.values()) is bool(KERNELS[name].compilers)
)
"""In fp32, on every GPU."""
NO_TENSOR_CORES = tuple(
    name
    for name in PLANNED
    if KERNELS[name].takes is ElementMap
    and KERNELS[name].natural_pattern != "2:4"
    and set(KERNELS[name].compilers) <= {"none"}
)
"""On CUDA cores in every dtype: single elements in any place."""
HALF_ONLY = tuple(name for name in PLANNED if set(KERNELS[name].compilers) == {"mma"})
"""Kernels that run on tensor cores by `mma` only. Fragments of tf32 differ from those of half precision."""
FIRST_OF = {load_gpu(name).compute_capability: name for name in reversed(gpu_names())}
GPUS_AND_DTYPES = [
    *((name, "fp16") for name in gpu_names()),
    *((name, dtype) for name in FIRST_OF.values() for dtype in ("bf16", "fp32", "tf32")),
]
"""GPUs of one compute capability differ in sizes, whatever the dtype."""


def plan_by_name(kernel: str, gpu, *, n: int = N, dtype: str = "fp16") -> KernelPlan:
    return example_plan(kernel, M, K, n, gpu, dtype=dtype)


@pytest.mark.parametrize("kernel", PLANNED)
@pytest.mark.parametrize(("name", "dtype"), GPUS_AND_DTYPES)
def test_every_gpu_gets_plans_that_fit_or_a_refusal_with_a_reason(name, kernel, dtype):
    gpu = load_gpu(name)
    old = gpu.compute_capability < 80
    refused = old and (kernel in NEED_AMPERE or dtype == "bf16" or dtype == "tf32")
    refused = refused or (dtype == "fp32" and kernel not in ON_CUDA_CORES)
    refused = refused or (dtype == "tf32" and (kernel in NO_TENSOR_CORES or kernel in HALF_ONLY))
    none = gpu.tensor_fp16_fma_per_clk_per_sm == 0 and dtype == "fp16"
    refused = refused or (none and kernel not in NO_TENSOR_CORES)
    if refused:
        with pytest.raises(BadInput, match=r"needs|tensor cores|fp16 or bf16"):
            plan_by_name(kernel, gpu, dtype=dtype)
        return
    plan = plan_by_name(kernel, gpu, dtype=dtype)
    check_plan(plan)
    assert plan.kernel == kernel
    assert plan.dtype == dtype
    fit = occupancy(plan.resources, gpu).blocks_per_sm
    assert fit >= 1
    assert plan.schedule is Schedule.HARDWARE or plan.blocks <= fit * gpu.sm_count


@pytest.mark.parametrize("kernel", PLANNED)
def test_a_plan_is_the_same_every_time(kernel):
    assert plan_by_name(kernel, toy_gpu()).fingerprint() == plan_by_name(kernel, toy_gpu()).fingerprint()


@pytest.mark.parametrize("kernel", PLANNED)
@pytest.mark.parametrize("n", [0, -5])
def test_no_tokens_are_refused(kernel, n):
    with pytest.raises(BadInput, match=rf"n \(tokens\) must be at least 1, got {n}"):
        plan_by_name(kernel, toy_gpu(), n=n)


@pytest.mark.parametrize("kernel", PLANNED)
def test_an_unknown_dtype_is_refused(kernel):
    with pytest.raises(BadInput, match="dtype must be one of fp16, bf16, fp32, tf32, fp8, int8, got 'int4'"):
        plan_by_name(kernel, toy_gpu(), dtype="int4")


@pytest.mark.parametrize("kernel", PLANNED)
def test_a_gpu_on_which_nothing_fits_is_refused(kernel):
    with pytest.raises(PlanDoesNotFit, match="toy"):
        plan_by_name(kernel, toy_gpu(threads_per_block=64))


@pytest.mark.parametrize(("m", "k"), [(0, 4), (4, 0), (-1, 4)])
def test_an_empty_dense_matrix_is_refused(m, k):
    with pytest.raises(BadInput, match="at least one row and one column"):
        plan_dense(m, k, 8, "fp16", toy_gpu())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"assignment": "round-robin"}, "assignment must be one of longest-first, stream-k"),
        ({"split": 0}, "split must be auto, None or a number of k-steps from 1, got 0"),
        ({"split": "often"}, "split must be auto, None"),
    ],
)
def test_unknown_options_of_stspmm_are_refused(options, message):
    with pytest.raises(BadInput, match=message):
        fastest_plan("stspmm", tiles_keeping([8], height=64, k=8), 8, "fp16", toy_gpu(), **options)


def test_tile_wise_runs_one_block_per_tile_and_token_range():
    plan = fastest_plan("tile-wise", tiles_of_density(512, 300, 128, 0.5), 1000, "fp16", toy_gpu())
    assert plan.schedule is Schedule.HARDWARE
    assert plan.blocks == 4 * -(-1000 // plan.shape.block_n)
    assert (plan.work.parts == 1).all()
    assert (plan.b_access, plan.tensor) == ("gather", "wgmma")


@pytest.mark.parametrize(
    ("assignment", "schedule"),
    [
        ("longest-first", Schedule.STATIC),
        ("stream-k", Schedule.STATIC),
    ],
)
def test_stspmm_runs_a_persistent_grid(assignment, schedule):
    tiles = tiles_of_density(1024, 2000, 128, 0.5)
    plan = fastest_plan("stspmm", tiles, 1000, "fp16", toy_gpu(), assignment=assignment)
    assert plan.schedule is schedule
    assert plan.blocks == 4


def test_stspmm_evens_out_what_tile_wise_does_not():
    """One tile keeps eight times what the others keep; whole, it takes longer than the rest together."""
    tiles = tiles_keeping([8000] + [1000] * 4, height=16, k=8000)
    gpu = toy_gpu()
    narrow = next(c for c in tile_configs(gpu, "fp16", 16) if c.shape.block_n == 128)
    steps = {
        split: block_steps(plan_stspmm(tiles, 256, "fp16", gpu, config=narrow, split=split))
        for split in ("auto", None)
    }
    assert max(steps[None]) == 125
    assert max(steps["auto"]) < 0.8 * max(steps[None])
    assert max(steps["auto"]) <= 1.02 * np.mean(steps["auto"])


def block_steps(plan: KernelPlan) -> list[int]:
    ends = np.concatenate(([0], np.cumsum(plan.steps_per_item)))[plan.work.block_start]
    return np.diff(ends).tolist()


def test_a_split_number_bounds_the_steps_of_a_part():
    tiles = tiles_keeping([640, 64], height=16, k=640)
    plan = fastest_plan("stspmm", tiles, 64, "fp16", toy_gpu(), split=3)
    # The tile of one step gets a second one of zeros, as every item does on sm_90
    assert sorted((plan.work.k_stop - plan.work.k_start).tolist()) == [64, 128, 128, 192, 192]
    assert sorted(plan.steps_per_item.tolist()) == [2, 2, 2, 3, 3]


@pytest.mark.parametrize(
    ("capability", "schedule", "tensor", "multicast"),
    [
        (80, Schedule.HARDWARE, "mma", set()),
        (90, Schedule.STATIC, "wgmma", {4}),
        (100, Schedule.STATIC, "wgmma", {1}),
        (120, Schedule.HARDWARE, "mma", set()),
    ],
)
def test_the_dense_plan_of_each_architecture(capability, schedule, tensor, multicast):
    plan = plan_dense(1024, 512, 512, "fp16", toy_gpu(compute_capability=capability))
    assert (plan.schedule, plan.tensor, plan.b_access) == (schedule, tensor, "dense_tile")
    copies = [i.multicast for p in plan.programs for i in p.step if i.op in (Op.COPY_A, Op.COPY_B)]
    assert max(copies) == max(multicast, default=1)
    assert plan.density == 1


def test_a_single_tile_shares_nothing():
    plan = plan_dense(8, 64, 8, "fp16", toy_gpu())
    assert plan.item_count == 1
    copies = [i.multicast for p in plan.programs for i in p.step if i.op in (Op.COPY_A, Op.COPY_B)]
    assert set(copies) == {1}


def test_tiles_of_one_token_range_run_together():
    plan = plan_dense(1024, 64, 2048, "fp16", toy_gpu())
    first = plan.work.block_start[:-1]
    assert len(set(plan.work.token_start[first].tolist())) == 1
    assert len(set(plan.work.tile[first].tolist())) == plan.blocks


@pytest.mark.parametrize(
    ("columns", "block_k", "expected"),
    [
        ([*range(64), *range(128, 192)], 64, True),
        ([*range(32), *range(64, 96)], 32, True),
        ([*range(32), *range(64, 96)], 64, False),
        ([*range(32, 96)], 64, False),
        ([*range(64, 100)], 64, True),
        ([0, 2], 64, False),
        ([], 64, True),
    ],
)
def test_slabs_are_runs_that_start_on_a_step(columns, block_k, expected):
    tiles = tiles_keeping([len(columns)], height=2, k=200)
    tiles = type(tiles)(
        m=2,
        k=200,
        row_start=tiles.row_start,
        row_index=tiles.row_index,
        column_start=tiles.column_start,
        column_index=np.array(columns),
        pattern="block:2x32",
    )
    assert _steps_are_slabs(tiles, block_k) == expected


def test_narrow_blocks_are_gathered():
    tiles = tiles_keeping([48, 16], height=64, k=64)
    assert fastest_plan("block-sparse", tiles, 64, "fp16", toy_gpu()).b_access == "gather"


@pytest.mark.parametrize(
    ("capability", "tensor"), [(80, "sparse-mma"), (90, "sparse-wgmma"), (100, "sparse-mma")]
)
def test_2_of_4_uses_sparse_tensor_cores(capability, tensor):
    plan = fastest_plan("2:4", two_of_four(128, 128), 64, "fp16", toy_gpu(compute_capability=capability))
    assert (plan.tensor, plan.b_access) == (tensor, "gather")
    assert plan.density == 0.5
    assert plan.tiles.density == 1
    assert plan.pattern == "2:4"


def test_three_of_four_are_refused_with_their_place():
    mask = two_of_four(8, 12).mask()
    mask[5, 8:11] = True
    elements = element_map_from_mask(mask, "2:4")
    with pytest.raises(BadInput, match=r"row 5 keeps \d of the four columns from 8, at most 2 fit"):
        fastest_plan("2:4", elements, 8, "fp16", toy_gpu())


def test_elements_outside_their_tiles_are_refused():
    tiles, config = tiles_keeping([0], height=8, k=12), sparse_configs(toy_gpu(), "fp16", 8)[0]
    with pytest.raises(BadInput, match="which its tile does not keep"):
        plan_sparse_tensor(two_of_four(8, 12), 8, "fp16", toy_gpu(), config, tiles=tiles)
    with pytest.raises(BadInput, match="elements are of 8 x 12, tiles of 8 x 13"):
        plan_sparse_tensor(
            two_of_four(8, 12), 8, "fp16", toy_gpu(), config, tiles=tiles_keeping([13], height=8, k=13)
        )


def test_csr_has_no_shared_memory_and_no_tensor_cores():
    plan = plan_csr(elements_of_density(20, 50, 0.3), 8, "fp16", toy_gpu())
    assert plan.tensor == "none"
    assert plan.resources.shared_bytes == plan.resources.stages == 0


def test_planning_needs_no_numba_until_work_is_assigned():
    code = "import sys, prunecast.kernels; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

"""A kernel is a folder with a record: one added here is planned, checked and predicted like others."""

import importlib
import sys
import textwrap
from dataclasses import replace

import numpy as np
import pytest

from prunecast.choice import fastest_plan
from prunecast.codesign import predict
from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.kernels import KERNELS, run_reference
from prunecast.launch import CacheState
from prunecast.launch.context import gpu_as_found
from prunecast.models import estimate
from prunecast.patterns import parse_pattern
from prunecast.patterns.tiling import dense_tile_map
from prunecast.plan.program import Op
from prunecast.report.page import words_of
from prunecast.simulator import simulate
from prunecast.validation.case import Case
from prunecast.validation.case_maps import case_plan, map_of
from prunecast.workload import candidates, kernels_of

H200 = load_gpu("h200-sxm")

PLANNER = '''
"""Every tile by one block of four warps: weights and rows of B from L2 into registers, FMA on CUDA cores."""

from prunecast.hardware.occupancy import BlockResources
from prunecast.plan.kernel_plan import BlockShape, KernelPlan
from prunecast.plan.assignment import assign_hardware
from prunecast.plan.program import Instruction, Op, WarpProgram
from prunecast.plan.tile_rows import cut_rows
from prunecast.plan.work_items import raster, whole_items

SHAPE = BlockShape(32, 32, 16)
WORKER = WarpProgram(
    role="worker",
    warps=4,
    begin=(),
    step=(
        Instruction(Op.LOAD_A, 32 * 16 * 2 // 4, 2),
        Instruction(Op.LOAD_B, 32 * 2, 1, per_k16=True),
        Instruction(Op.WAIT_LOAD),
        Instruction(Op.FMA, issue=32 * 32 * 16 // 4 // 32),
    ),
    end=(Instruction(Op.STORE_C, 32 * 32 * 2 // 4, 2),),
    finish=(),
)


def plan_toy(tiles, n, dtype, gpu, *, config=None):
    tiles = cut_rows(tiles, SHAPE.block_m)
    order = raster(tiles.tile_count, -(-n // SHAPE.block_n), 1)
    assigned = assign_hardware(whole_items(tiles.kept_per_tile, order, n=n, block_n=SHAPE.block_n))
    return KernelPlan(
        kernel="toy", n=n, dtype=dtype, tiles=tiles, work=assigned.work, schedule=assigned.schedule,
        blocks=assigned.blocks, shape=SHAPE, resources=BlockResources(128, 64, 0), programs=(WORKER,),
        tensor="none",
    )
'''

KERNEL = """
from prunecast.kernels.kernel import Kernel
from prunecast.patterns import TileMap
from toy_kernel.planner import plan_toy

TOY = Kernel(
    name="toy",
    meaning="tiles on CUDA cores, a block each",
    takes=TileMap,
    natural_pattern="tile-wise:32",
    keeps=("tiles",),
    plan=plan_toy,
)
"""

EIGHT_BITS = """
# Weights in 8 bits: half of the bytes are copied, and each lane unpacks 4 weights before it multiplies

from dataclasses import replace

from prunecast.kernels.kernel import Kernel
from prunecast.patterns import TileMap
from prunecast.patterns.tiling import dense_tile_map
from prunecast.plan.program import Instruction, Op
from toy_kernel.planner import WORKER, plan_toy

_WEIGHTS, _ROWS, _WAIT, _MULTIPLY = WORKER.step
_UNPACK = Instruction(Op.ISSUE, issue=6)  # two permutations, two subtractions, two scalings of fp16 pairs
STEP = (_WEIGHTS._replace(amount=_WEIGHTS.amount // 2, issue=1), _ROWS, _WAIT, _UNPACK, _MULTIPLY)


def plan_eight(tiles, n, dtype, gpu):
    return replace(plan_toy(tiles, n, dtype, gpu), kernel="eight", programs=(replace(WORKER, step=STEP),))


def plan_of_sizes(m, k, n, dtype, gpu):
    return plan_eight(dense_tile_map(m, k, 32), n, dtype, gpu)


COMMON = dict(
    name="eight",
    meaning="all weights, in 8 bits",
    natural_pattern="dense",
    families=("dense",),
    weight_bits=8,
)
OF_MAPS = Kernel(takes=TileMap, plan=plan_eight, **COMMON)
OF_SIZES = Kernel(takes=None, plan=plan_of_sizes, **COMMON)
"""


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """The record, in the table while the test runs; nothing else is touched."""
    folder = tmp_path / "toy_kernel"
    folder.mkdir()
    files = {"__init__": "", "planner": PLANNER, "kernel": KERNEL, "eight": EIGHT_BITS}
    for name, text in files.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(text))
    monkeypatch.syspath_prepend(str(tmp_path))
    record = importlib.import_module("toy_kernel.kernel").TOY
    monkeypatch.setitem(KERNELS, record.name, record)
    yield record
    for name in [name for name in sys.modules if name.startswith("toy_kernel")]:
        del sys.modules[name]


def test_it_is_offered_where_its_record_says(toy):
    assert "toy" in kernels_of("tile-wise:32")
    assert "toy" not in kernels_of("unstructured")
    assert ("toy", "tile-wise:32", True) in candidates()


def test_its_plan_means_the_product_and_both_engines_time_it(toy):
    rng = np.random.default_rng(0)
    pattern, weights = parse_pattern("tile-wise:32"), rng.standard_normal((96, 128))
    mask = pattern.prune({"w": np.abs(weights)}, 0.5)["w"]
    plan = toy.plan(pattern.map(mask), 40, "fp16", H200)
    b = rng.standard_normal((128, 40))
    np.testing.assert_allclose(run_reference(plan, weights, b), (weights * mask) @ b, rtol=1e-9)
    assert 0 < estimate(plan, H200).seconds < 1e-3
    assert 0 < simulate(plan, H200).seconds < 1e-3


def test_it_is_predicted_beside_the_others(toy):
    weights = {"layer": np.random.default_rng(1).standard_normal((256, 512)).astype(np.float32)}
    asked = {"engine": "model", "sparsity": 0.5, "kernels": ["toy", "stspmm"], "crossovers": False}
    table = predict(weights, gpu="h200-sxm", tokens=64, **asked)
    assert {row.kernel for row in table} == {"dense", "stspmm", "toy"}
    toys = next(row for row in table if row.kernel == "toy")
    assert toys.pattern == "tile-wise:32"
    assert toys.seconds_low < toys.seconds < toys.seconds_high
    assert words_of(table)["toy"] == toy.meaning


@pytest.fixture(params=["OF_MAPS", "OF_SIZES"])
def eight(toy, monkeypatch, request):
    """A kernel of dense weights in 8 bits, whose planner accepts a map or the sizes of A."""
    record = getattr(importlib.import_module("toy_kernel.eight"), request.param)
    monkeypatch.setitem(KERNELS, record.name, record)
    return record


@pytest.mark.parametrize("pattern", [None, "tile-wise:32", "dense"])
def test_a_dense_kernel_is_compared_with_the_baseline_whatever_is_pruned(eight, pattern):
    weights = {"layer": np.random.default_rng(1).standard_normal((256, 512)).astype(np.float16)}
    asked = {"gpu": "h200-sxm", "tokens": 64, "engine": "model", "crossovers": False}
    sparsity = None if pattern == "dense" else 0.9
    dense, row = predict(weights, kernels=["eight"], pattern=pattern, sparsity=sparsity, **asked)
    (alone,) = predict(weights, kernels="dense", **asked)
    assert (dense.kernel, dense.seconds) == ("dense", alone.seconds)
    assert (row.kernel, row.pattern, row.sparsity, row.note) == ("eight", "dense", 0.0, "")
    assert row.plan.kernel == "eight"
    assert row.packed_bytes == 256 * 512
    assert dense.plan.kernel == "dense"


def test_weights_in_fewer_bits_leave_more_of_a_model_in_l2(eight, monkeypatch):
    plan = fastest_plan("eight", dense_tile_map(1024, 1024, 128), 64, "fp16", H200)
    l2 = CacheState("model", 2 * H200.l2_usable_bytes)
    eight_bits = gpu_as_found(plan, H200, l2).dram_bytes_per_s
    monkeypatch.setitem(KERNELS, "eight", replace(eight, weight_bits=None))
    assert eight_bits > gpu_as_found(plan, H200, l2).dram_bytes_per_s


@pytest.mark.parametrize("engine", [simulate, estimate])
def test_unpacking_needs_issue_slots_and_packed_weights_need_fewer_bytes(eight, engine):
    plan = fastest_plan("eight", dense_tile_map(8192, 1024, 128), 64, "fp16", H200)
    step = plan.programs[0].step
    free = tuple(i for i in step if i.op is not Op.ISSUE)
    whole = tuple(i._replace(amount=2 * i.amount) if i.op is Op.LOAD_A else i for i in step)
    cycles = {
        name: engine(replace(plan, programs=(replace(plan.programs[0], step=own),)), H200).cycles
        for name, own in (("eight", step), ("free", free), ("whole", whole))
    }
    assert cycles["free"] < cycles["eight"] < cycles["whole"]


def test_a_case_of_a_suite_can_be_a_dense_kernel(eight):
    case = Case(
        name="c",
        m=96,
        k=128,
        n=40,
        dtype="fp16",
        pattern="dense",
        sparsity=0.0,
        kernels=("eight",),
        use="fit",
    )
    assert case_plan(case, "eight", map_of(case), H200).kernel == "eight"
    with pytest.raises(BadInput, match="needs a pattern, got dense"):
        case_plan(case, "toy", map_of(case), H200)

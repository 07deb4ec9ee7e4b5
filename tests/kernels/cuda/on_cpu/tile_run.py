"""The tile kernel for sm_90a on the CPU, from a plan: blocks alone or in clusters, and rows in no tile."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from prunecast.kernels import KernelPlan
from prunecast.kernels.device.build import SOURCES as DEVICE
from prunecast.kernels.device.compile_inputs import ACTIVATIONS
from prunecast.kernels.device.packing import packed_weights
from prunecast.kernels.device.tile_stages import uncovered_rows
from prunecast.kernels.tile.cuda.fp8 import Fp8TileOperator
from prunecast.kernels.tile.cuda.operator import (
    TileOperator,
    box_of,
    token_box_of,
)
from tests.kernels.cuda.on_cpu.on_cpu import Grid, build_on_cpu, run_on_cpu
from tests.kernels.cuda.on_cpu.operands import Operands, Rows
from tests.kernels.cuda.packed import host_arrays, packed_stages

__all__ = ["run_fill", "run_tiles"]


def run_tiles(
    plan: KernelPlan,
    operands: Operands,
    folder: Path,
    *,
    activation: str = "none",
    defines: Mapping[str, int] | None = None,
    changes: Mapping[str, str] | None = None,
    landing: str = "oldest",
    backwards: bool = False,
    seed: int = 0,
    token_major: Rows | None = None,
    residual: bool = False,
    gated: Rows | None = None,
) -> None:
    """Fill the rows of C that lie in tiles; all blocks run at once.

    Parameters
    ----------
    operands : rows aligned to 8 elements
    defines : preprocessor names that differ from the plan's form
    changes : as `build_on_cpu`; the rest as `Grid`
    token_major : C as (tokens, M), to be filled instead; it may have fewer tokens than B
    residual : what it holds is added to
    gated : C as (M / 2, tokens), of gate and up that interleave in A, to be filled instead
    """
    if token_major is not None:
        defines = {**(defines or {}), "TOKEN_MAJOR": 1, "RESIDUAL": int(residual)}
    if gated is not None:
        defines = {**(defines or {}), "GLU": 1}
    form = TileOperator.compile_inputs(
        plan, activation=activation, bias=operands.bias is not None, changes=defines
    )
    kernel = build_on_cpu(form.source, form.entry, form.defines, folder, changes=changes)
    packed = TileOperator.records(plan)
    arrays = host_arrays(packed, packed_stages(TileOperator, plan, operands.a).weights, operands.bias)
    args = packed.args.copy()
    arrays = {name: _at_128(array) for name, array in arrays.items()}
    for name, array in arrays.items():
        args[name] = array.ctypes.data
    args["b"], args["b_row_bytes"] = operands.b.address, operands.b.row_bytes
    if operands.second is not None:
        args["second"] = operands.second.address - operands.b.address
    c = gated or token_major or operands.c
    args["c"], args["c_row_bytes"], args["c_tokens"] = c.address, c.row_bytes, c.matrix.shape[0]
    grid = _grid_of(plan, landing, seed, backwards=backwards)
    run_on_cpu(
        kernel,
        grid,
        [args, _map_of_c(plan, c, gated=gated is not None) if token_major is None else _token_map(plan, c)],
        [*arrays.values(), *operands.inputs, c.whole],
    )
    assert not arrays["counters"].any(), "counters of split tiles must be zero again"


def run_fp8(
    plan: KernelPlan,
    bits: np.ndarray,
    row_scales: np.ndarray,
    x: np.ndarray,
    token_scales: np.ndarray,
    bias: np.ndarray | None,
    c: Rows,
    folder: Path,
    *,
    output: str,
    residual: bool,
    gated: bool,
    changes: Mapping[str, str] | None = None,
    landing: str = "oldest",
    backwards: bool = False,
    seed: int = 0,
) -> None:
    """Fill C (tokens, M) from A (M, K) and x (tokens, K), both as bits of e4m3, with their scales.

    gated : C is (tokens, M / 2), of gate and up that interleave in A
    """
    form = Fp8TileOperator.compile_inputs(
        plan,
        bias=bias is not None,
        output=output,
        activation="silu" if gated else "none",
        changes={"RESIDUAL": int(residual), "GLU": int(gated)},
    )
    kernel = build_on_cpu(form.source, form.entry, form.defines, folder, changes=changes)
    stages = Fp8TileOperator.stages(plan)
    packed = Fp8TileOperator.records(plan)
    weights = packed_weights(bits, plan.tiles, stages, Fp8TileOperator.slab(plan))
    arrays = {
        **host_arrays(packed, weights, bias),
        "row_scales": row_scales,
        "token_scales": token_scales,
        "b": x,
    }
    arrays = {name: _at_128(array) for name, array in arrays.items()}
    args = packed.args.copy()
    for name, array in arrays.items():
        args[name] = array.ctypes.data
    args["b_row_bytes"], args["c"], args["c_row_bytes"] = plan.k, c.address, c.row_bytes
    args["c_tokens"] = c.matrix.shape[0]
    args["b_map"][0, :6] = [arrays["b"].ctypes.data, plan.k, plan.n, plan.k, 32, plan.shape.block_n]
    box = token_box_of(plan)
    facts = [
        c.address,
        c.matrix.shape[1],
        c.matrix.shape[0],
        c.row_bytes,
        box.tokens,
        box.rows,
        output == "bf16",
    ]
    c_map = np.array(facts + [0] * (16 - len(facts)), np.uint64)
    grid = _grid_of(plan, landing, seed, backwards=backwards)
    run_on_cpu(kernel, grid, [args, c_map], [*arrays.values(), c.whole])
    assert not arrays["counters"].any(), "counters of split tiles must be zero again"


def _grid_of(plan: KernelPlan, landing: str, seed: int, *, backwards: bool) -> Grid:
    """The launch of a plan, with the order of copies and blocks that a test asks for."""
    resources = plan.resources
    return Grid(
        plan.blocks,
        resources.threads,
        resources.shared_bytes,
        cluster=plan.cluster,
        landing=landing,
        backwards=backwards,
        seed=seed,
    )


def _map_of_c(plan: KernelPlan, c: Rows, *, gated: bool) -> np.ndarray:
    """C as `machine_memory.cpp` reads a tensor map: address, tokens, rows, bytes of a row, box."""
    box = box_of(plan, gated=gated)
    facts = [c.address, -(-plan.n // 8) * 8, c.matrix.shape[0], c.row_bytes, box.tokens, box.rows]
    return np.array(facts + [0] * (16 - len(facts)), np.uint64)


def _token_map(plan: KernelPlan, c: Rows) -> np.ndarray:
    """The same of (tokens, M), and whether what is added are bf16."""
    box = token_box_of(plan)
    facts = [c.address, plan.m, c.matrix.shape[0], c.row_bytes, box.tokens, box.rows, plan.dtype == "bf16"]
    return np.array(facts + [0] * (16 - len(facts)), np.uint64)


def run_fill(plan: KernelPlan, operands: Operands, folder: Path, *, activation: str = "none") -> None:
    """Fill the rows of C that lie in no tile."""
    form = {"BIAS": int(operands.bias is not None), "ACTIVATION": ACTIVATIONS[activation]}
    form |= {"BF16": 1} if plan.dtype == "bf16" else {}
    kernel = build_on_cpu(DEVICE / "fill_rows.cu", "fill_rows", form, folder)
    rows = uncovered_rows(plan.tiles)
    if not rows.size:
        return
    bias = np.zeros(1, np.float32) if operands.bias is None else operands.bias
    arguments = [
        np.array([rows.ctypes.data]),
        np.array([bias.ctypes.data]),
        np.array([operands.c.address]),
        np.array([operands.c.row_bytes]),
        np.array([-(-plan.n // 8) * 8], np.int32),
    ]
    run_on_cpu(kernel, Grid(rows.size, 256, 0), arguments, [])


def _at_128(array: np.ndarray) -> np.ndarray:
    """The same at a multiple of 128 bytes, as device arrays lie."""
    whole = np.zeros(array.nbytes + 128, np.uint8)
    first = -whole.ctypes.data % 128
    found = whole[first : first + array.nbytes].view(array.dtype).reshape(array.shape)
    found[...] = array
    return found

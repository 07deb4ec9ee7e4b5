"""The kernel for few tokens on the CPU, from a plan."""

from collections.abc import Mapping
from pathlib import Path

from prunecast.kernels import KernelPlan
from prunecast.kernels.small_n.cuda.records import SmallOperator
from tests.kernels.cuda.on_cpu.on_cpu import Grid, build_on_cpu, run_on_cpu
from tests.kernels.cuda.on_cpu.operands import Operands, Rows
from tests.kernels.cuda.packed import host_arrays, packed_stages

__all__ = ["run_small"]


def run_small(
    plan: KernelPlan,
    operands: Operands,
    folder: Path,
    *,
    activation: str = "none",
    changes: Mapping[str, str] | None = None,
    landing: str = "oldest",
    backwards: bool = False,
    seed: int = 0,
    token_major: Rows | None = None,
    residual: bool = False,
    gated: Rows | None = None,
) -> None:
    """Fill C of `operands`; blocks run two at a time. `changes` as `build_on_cpu`, the rest as `Grid`.

    `token_major` is C as (tokens, M), to be filled instead; it may have fewer tokens than B. With `residual`
    the product is added to what it holds. So is `gated`, C as (M / 2, tokens) of gate and up that interleave
    in A.
    """
    form = SmallOperator.compile_inputs(plan, activation=activation, bias=operands.bias is not None)
    defines = dict(form.defines)
    if token_major is not None:
        defines |= {"TOKEN_MAJOR": 1, "RESIDUAL": int(residual)}
    if gated is not None:
        defines["GLU"] = 1
    kernel = build_on_cpu(form.source, form.entry, defines, folder, changes=changes)
    packed = SmallOperator.records(plan)
    arrays = host_arrays(packed, packed_stages(SmallOperator, plan, operands.a).weights, operands.bias)
    args = packed.args.copy()
    for name, array in arrays.items():
        args[name] = array.ctypes.data
    shift = operands.b.address % 4 // 2  # elements before B in its first word
    args["b"], args["b_shift"] = operands.b.address - 2 * shift, shift
    args["b_row_bytes"] = operands.b.row_bytes
    args["b_end"] = shift + (plan.k - 1) * (operands.b.row_bytes // 2) + plan.n
    c = gated or token_major or operands.c
    args["c"], args["c_row_bytes"], args["c_tokens"] = c.address, c.row_bytes, c.matrix.shape[0]
    resources = plan.resources
    grid = Grid(
        packed.blocks,
        resources.threads,
        resources.shared_bytes,
        resident=2,
        landing=landing,
        backwards=backwards,
        seed=seed,
    )
    run_on_cpu(kernel, grid, [args], [*arrays.values(), operands.b.whole, c.whole])
    assert (arrays["clock"] > 0).all(), "the clock was not written"

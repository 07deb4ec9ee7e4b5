"""The sparse kernel for sm_90a on the CPU, from a plan; rows in no tile are left to `tile_run.run_fill`."""

from collections.abc import Mapping
from pathlib import Path

from prunecast.kernels import KernelPlan
from prunecast.kernels.two_of_four.cuda.operator import SparseOperator
from tests.kernels.cuda.on_cpu.on_cpu import Grid, build_on_cpu, run_on_cpu
from tests.kernels.cuda.on_cpu.operands import Operands, Rows
from tests.kernels.cuda.packed import host_arrays, packed_stages

__all__ = ["run_sparse"]


def run_sparse(
    plan: KernelPlan,
    operands: Operands,
    folder: Path,
    *,
    activation: str = "none",
    changes: Mapping[str, str] | None = None,
    token_major: Rows | None = None,
    residual: bool = False,
    landing: str = "oldest",
    seed: int = 0,
) -> None:
    """Fill the rows of C in tiles; blocks run two at a time, all where tiles are split. The rest as
    `build_on_cpu` and `Grid`.

    Parameters
    ----------
    token_major : C as (tokens, M), to be filled instead, or added to where it is a `residual`
    """
    own = {"TOKEN_MAJOR": 1, "RESIDUAL": int(residual)} if token_major is not None else {}
    form = SparseOperator.compile_inputs(
        plan, activation=activation, bias=operands.bias is not None, changes=own
    )
    kernel = build_on_cpu(
        form.source, form.entry, form.defines, folder, includes=form.includes, changes=changes
    )
    packed = SparseOperator.records(plan)
    arrays = host_arrays(packed, packed_stages(SparseOperator, plan, operands.a).weights, operands.bias)
    args = packed.args.copy()
    for name, array in arrays.items():
        args[name] = array.ctypes.data
    args["b"], args["b_row_bytes"] = operands.b.address, operands.b.row_bytes
    c = token_major or operands.c
    args["c"], args["c_row_bytes"], args["c_tokens"] = c.address, c.row_bytes, c.matrix.shape[0]
    resources = plan.resources
    grid = Grid(
        plan.blocks,
        resources.threads,
        resources.shared_bytes,
        resident=plan.blocks if plan.work.parts.max(initial=1) > 1 else 2,
        landing=landing,
        seed=seed,
    )
    run_on_cpu(kernel, grid, [args], [*arrays.values(), operands.b.whole, c.whole])
    assert not arrays["counters"].any(), "counters of split tiles must be zero again"

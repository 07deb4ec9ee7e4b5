"""The tile kernels for GPUs without wgmma, tensor cores or CUDA cores, on the CPU, from a plan."""

from collections.abc import Mapping
from pathlib import Path

from prunecast.kernels import KernelPlan
from prunecast.kernels.tile.cuda.ffma.operator import FfmaOperator
from prunecast.kernels.tile.cuda.mma.operator import MmaOperator, has_async_copies
from tests.kernels.cuda.on_cpu.on_cpu import Grid, build_on_cpu, run_on_cpu
from tests.kernels.cuda.on_cpu.operands import Operands
from tests.kernels.cuda.packed import host_arrays, packed_stages

__all__ = ["run_mma"]


def run_mma(
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
) -> None:
    """Fill C of `operands`; all blocks run at once.

    Parameters
    ----------
    operands : rows aligned to 16 bytes
    defines : preprocessor names that differ from the plan's form
    changes : as `build_on_cpu`; the rest as `Grid`
    """
    choices = {"activation": activation, "bias": operands.bias is not None, "changes": defines}
    arch = 900 if has_async_copies(plan) else 750
    if plan.tensor == "none":
        operator: type[MmaOperator] = FfmaOperator
    else:
        operator = MmaOperator
    form, packed = operator.compile_inputs(plan, **choices), operator.records(plan)
    kernel = build_on_cpu(form.source, form.entry, form.defines, folder, arch=arch, changes=changes)
    arrays = host_arrays(packed, packed_stages(operator, plan, operands.a).weights, operands.bias)
    args = packed.args.copy()
    for name, array in arrays.items():
        args[name] = array.ctypes.data
    args["b"], args["b_row_bytes"] = operands.b.address, operands.b.row_bytes
    args["c"], args["c_row_bytes"] = operands.c.address, operands.c.row_bytes
    if operands.second is not None:
        args["second"] = operands.second.address - operands.b.address
    resources = plan.resources
    grid = Grid(
        packed.blocks,
        resources.threads,
        resources.shared_bytes,
        landing=landing,
        backwards=backwards,
        seed=seed,
    )
    run_on_cpu(kernel, grid, [args], [*arrays.values(), *operands.inputs, operands.c.whole])
    assert not arrays["counters"].any(), "counters of split tiles must be zero again"
    assert (arrays["clock"] > 0).all(), "the clock was not written"

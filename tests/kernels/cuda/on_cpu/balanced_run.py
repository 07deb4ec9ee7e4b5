"""The balanced kernels on the CPU, from a plan."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from prunecast.kernels import KernelPlan
from prunecast.kernels.balanced.cuda.operator import BalancedOperator
from tests.kernels.cuda.on_cpu.on_cpu import Grid, build_on_cpu, run_on_cpu
from tests.kernels.cuda.on_cpu.operands import Operands

__all__ = ["run_balanced"]


def run_balanced(
    plan: KernelPlan,
    operands: Operands,
    folder: Path,
    *,
    activation: str = "none",
    arch: int = 900,
    changes: Mapping[str, str] | None = None,
    landing: str = "oldest",
    seed: int = 0,
) -> None:
    """Fill C of `operands`; blocks run two at a time. The rest as `build_on_cpu` and `Grid`."""
    form = BalancedOperator.compile_inputs(plan, activation=activation, bias=operands.bias is not None)
    kernel = build_on_cpu(form.source, form.entry, form.defines, folder, arch=arch, changes=changes)
    images = BalancedOperator.pack(plan, operands.a)
    bias = np.zeros(1, np.float32) if operands.bias is None else operands.bias
    arrays = {**images.arrays, "bias": bias, "clock": np.zeros(4, np.uint64)}
    args = images.args
    for name, array in arrays.items():
        args[name] = array.ctypes.data
    args["b"], args["c"] = operands.b.address, operands.c.address
    if plan.n == 1:
        item = operands.b.whole.itemsize
        args["b_step"], args["c_step"] = operands.b.row_bytes // item, operands.c.row_bytes // item
    else:
        args["b_row_bytes"], args["c_row_bytes"] = operands.b.row_bytes, operands.c.row_bytes
    resources = plan.resources
    grid = Grid(
        plan.blocks, resources.threads, resources.shared_bytes, resident=2, landing=landing, seed=seed
    )
    run_on_cpu(kernel, grid, [args], [*arrays.values(), operands.b.whole, operands.c.whole])

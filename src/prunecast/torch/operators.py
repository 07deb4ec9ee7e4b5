"""Register the operators `prunecast::NAME`, for torch's dispatcher, compiler and export."""

from collections.abc import Callable
from typing import Any

import torch

LIBRARY = torch.library.Library("prunecast", "FRAGMENT")


def register(
    schema: str,
    on_cpu: Callable[..., Any],
    on_cuda: Callable[..., Any] | None = None,
    fake: Callable[..., Any] | None = None,
    *,
    record: Any = None,
    fixed_strides: bool = False,
) -> Any:
    """Define an operator, and return it as a function.

    Parameters
    ----------
    schema : name, arguments and result, in the language of torch's schemas
    on_cpu : implementation for tensors on a CPU
    on_cuda : implementation for tensors on a GPU; None if it is `on_cpu`
    fake : implementation for tensors without values; None if it is `on_cpu`
    record : class of a record of the arguments, which the implementations then get instead of the arguments.
        Its method `new_y` allocates the result without values, as `fake`
    fixed_strides : let torch.compile keep the strides of the arguments
    """
    if record is not None:
        on_cpu, on_cuda, fake = (
            lambda *given, run=run: run(record(*given)) for run in (on_cpu, on_cuda or on_cpu, record.new_y)
        )
    name = schema.partition("(")[0]
    LIBRARY.define(schema, tags=(torch.Tag.needs_fixed_stride_order,) if fixed_strides else ())
    LIBRARY.impl(name, on_cpu, "CPU")
    LIBRARY.impl(name, on_cuda or on_cpu, "CUDA")
    torch.library.register_fake(f"prunecast::{name}", fake or on_cpu, lib=LIBRARY)
    return getattr(torch.ops.prunecast, name).default


def changes_argument(*_: Any) -> None:
    """Do nothing: the fake implementation of an operator that only changes an argument."""

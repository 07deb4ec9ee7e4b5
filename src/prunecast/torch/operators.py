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
    fixed_strides: bool = False,
) -> Any:
    """Define an operator, and return it as a function.

    Parameters
    ----------
    schema : name, arguments and result, in the language of torch's schemas
    on_cpu : implementation for tensors on a CPU
    on_cuda : implementation for tensors on a GPU; None if it is `on_cpu`
    fake : implementation for tensors without values; None if it is `on_cpu`
    fixed_strides : let torch.compile keep the strides of the arguments
    """
    name = schema.partition("(")[0]
    LIBRARY.define(schema, tags=(torch.Tag.needs_fixed_stride_order,) if fixed_strides else ())
    LIBRARY.impl(name, on_cpu, "CPU")
    LIBRARY.impl(name, on_cuda or on_cpu, "CUDA")
    torch.library.register_fake(f"prunecast::{name}", fake or on_cpu, lib=LIBRARY)
    return getattr(torch.ops.prunecast, name).default


def register_call(schema: str, call: Callable[..., Any]) -> Any:
    """Define an operator whose arguments are a record, and return it as a function.

    Parameters
    ----------
    schema : name, arguments and result, in the language of torch's schemas
    call : class of the record, with methods `on_cpu` and `on_cuda` that return y, and `new_y` that allocates
        y without values
    """
    on_cpu, on_cuda, fake = (
        lambda *given, name=name: getattr(call(*given), name)() for name in ("on_cpu", "on_cuda", "new_y")
    )
    return register(schema, on_cpu, on_cuda, fake)


def changes_argument(*_: Any) -> None:
    """Do nothing: the fake implementation of an operator that only changes an argument."""

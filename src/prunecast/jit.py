"""Numba's `njit` with compiled code cached in files, or only in memory if no folder is writable."""

import functools
import os
import warnings
from collections.abc import Callable
from typing import Any

import numba

prange = numba.prange


def njit(**options: Any) -> Any:
    """Return the decorator `numba.njit(cache=True, ...)`.

    If no cache folder is writable, warn once and compile without a cache.
    """

    def compiled(function: Callable[..., Any]) -> Any:
        try:
            return numba.njit(cache=True, **options)(function)
        except RuntimeError as error:
            if "no locator available" not in str(error):
                raise
        _warn()
        return numba.njit(**options)(function)

    return compiled


def inner(**options: Any) -> Any:
    """Return the decorator `numba.njit(...)` for functions that are called only by jitted functions of their
    file.

    Such functions must not be called from Python. They are compiled into their callers and stored in the
    callers' cache files. Omitting their own cache files and Python wrappers reduces the CPU time of the first
    compilation of the simulator from 19 to 14 s.
    """
    without_entries: Any = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return numba.njit(**without_entries, **options)


@functools.cache
def _warn() -> None:
    wanted = os.environ.get("NUMBA_CACHE_DIR")
    where = f"NUMBA_CACHE_DIR, {wanted}" if wanted else "neither the package nor the home folder"
    warnings.warn(
        f"compiled code is not kept, every run compiles anew: {where} can be written; "
        "set NUMBA_CACHE_DIR to a folder that can",
        RuntimeWarning,
        stacklevel=4,
    )

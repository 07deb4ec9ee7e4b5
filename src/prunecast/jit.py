"""`njit`: Numba's, its code kept in files where there is a place for them, and in memory elsewhere."""

import functools
import os
import warnings
from collections.abc import Callable
from typing import Any

import numba

prange = numba.prange


def njit(**options: Any) -> Any:
    """`numba.njit(cache=True, ...)`; where no place can be written, a warning, once, and no cache."""

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
    """`numba.njit(...)` for functions that only jitted functions of the same file call; Python must not.

    They are compiled into their callers, whose files of code hold them. Without files and entries from Python
    of their own the first run compiles the simulator in 14 s of CPU rather than 19.
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

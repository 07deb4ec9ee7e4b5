"""Where the cases of a sweep run: processes on this machine, or the workers of a Dask scheduler."""

import importlib
import multiprocessing
import os
import warnings
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager

from prunecast.errors import BadInput

_CONNECT_S = 10


@contextmanager
def open_executor(address: str = "processes", workers: int | None = None) -> Iterator[Executor]:
    """An executor by name.

    Parameters
    ----------
    address : `processes`, or `dask://host:port` of a running scheduler
    workers : processes; None for one per processor

    Raises
    ------
    BadInput : no worker, an unknown form, no `distributed` installed, or a scheduler that does not answer
    """
    if workers is not None and workers < 1:
        raise BadInput(f"workers must be at least 1, got {workers}")
    if address == "processes":
        with _pool(workers or os.cpu_count() or 1) as pool:
            yield pool
    elif address.startswith("dask://"):
        with _dask_executor(address) as executor:
            yield executor
    else:
        raise BadInput(f"executor must be processes or dask://host:port, got {address!r}")


def _pool(workers: int) -> Executor:
    """Processes, or one thread where the system has no semaphores for them: a container without /dev/shm."""
    # A child of a process with threads must not be forked: JIT and BLAS threads hold locks.
    context = multiprocessing.get_context("spawn")
    try:
        context.Lock()
        return ProcessPoolExecutor(workers, mp_context=context)
    except (OSError, ImportError, NotImplementedError):
        warnings.warn(
            "no processes can be started here, one case runs at a time", RuntimeWarning, stacklevel=2
        )
        return ThreadPoolExecutor(1)


@contextmanager
def _dask_executor(address: str) -> Iterator[Executor]:
    try:
        distributed = importlib.import_module("distributed")
    except ImportError:
        raise BadInput("dask:// needs the package `distributed`: pip install 'prunecast[sweep]'") from None
    try:
        client = distributed.Client("tcp://" + address.removeprefix("dask://"), timeout=_CONNECT_S)
    except (OSError, ValueError) as error:
        raise BadInput(f"no Dask scheduler answers at {address}: {str(error).splitlines()[0]}") from None
    with client:
        yield client.get_executor()

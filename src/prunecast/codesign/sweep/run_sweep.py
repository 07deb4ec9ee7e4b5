"""`run_sweep`: predict missing cases in processes or on Dask workers, and store them group by group.

Workers receive cases and return dictionaries. A worker caches data that its next group may share: the
importance, the last sparsity maps, and the specs of bundled GPUs.
"""

import importlib
import itertools
import multiprocessing
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from prunecast.arguments import checked
from prunecast.choice import PrunedMap, fastest_plan
from prunecast.codesign.sweep.cases import GroupKey, SweepCase, SweepStore, expand, groups_of
from prunecast.codesign.sweep.equal_importance import at_equal_importance, importance_of_group
from prunecast.codesign.sweep.table import SweepTable
from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec, gpu_names, load_gpu
from prunecast.kernels import KERNELS, KernelPlan, plan_dense
from prunecast.models import estimate
from prunecast.patterns import TileMap, element_map_from_mask, parse_pattern
from prunecast.workload.engines import Outcome, Progress, silent, simulate
from prunecast.workload.random_weights import MOST_DRAWN

_CONNECT_S = 10
MOST_WORKERS = 4096
"""Maximum number of processes of a sweep. Kind: choice, more than a machine has processors, but fewer than
operating systems refuse to start."""


@contextmanager
def open_executor(address: str = "processes", workers: int | None = None) -> Iterator[Executor]:
    """Yield an executor that runs in local processes or on a Dask cluster.

    Parameters
    ----------
    address : `processes`, or `dask://host:port` of a running Dask scheduler
    workers : number of local processes; None for one per processor

    Raises
    ------
    BadInput : `workers` is not from 1 to `MOST_WORKERS`, the address has another form, the package
        `distributed` is not installed, or the scheduler does not answer
    """
    if workers is not None and not 1 <= workers <= MOST_WORKERS:
        raise BadInput(f"workers must be from 1 to {MOST_WORKERS}, got {workers}")
    if address == "processes":
        others = set(multiprocessing.active_children())
        with _pool(workers or os.cpu_count() or 1) as pool:
            try:
                yield pool
            except BaseException:  # Ctrl-C too: keep stored results, do not wait for others
                pool.shutdown(wait=False, cancel_futures=True)
                for worker in set(multiprocessing.active_children()) - others:
                    worker.terminate()
                raise
    elif address.startswith("dask://"):
        with _dask_executor(address) as executor:
            yield executor
    else:
        raise BadInput(f"executor must be processes or dask://host:port, got {address!r}")


def _pool(workers: int) -> Executor:
    """Return a process pool; on systems without semaphores (a container without /dev/shm), one thread."""
    # Do not fork a process with threads: JIT and BLAS threads may hold locks.
    context = multiprocessing.get_context("spawn")
    try:
        context.Lock()
        return ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker)
    except (OSError, ImportError, NotImplementedError):
        warnings.warn(
            "no processes can be started here, one case runs at a time", RuntimeWarning, stacklevel=2
        )
        return ThreadPoolExecutor(1)


def _start_worker() -> None:
    """Ignore Ctrl-C, which reaches all processes of a terminal, and end with the parent process.

    A parent that is killed, or whose terminal is closed, cannot end its workers. They would wait for cases
    for ever, since each of them holds both ends of the pipe of the cases.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)


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


DASK_LOST = ("KilledWorker", "FutureCancelledError", "CommClosedError")
"""Names of the exceptions that Dask raises when workers or the scheduler are lost."""
IN_FLIGHT = 64
"""Maximum number of groups that are submitted to the executor at a time: enough to keep workers busy, few
enough to stop soon."""
MOST_CASES = {"model": 32, "simulator": 6}
"""Engine -> maximum number of cases per submission. A larger group is split, and its matrix is usually pruned
again for each part. This needs as long as tens of closed-form estimates, but less than one simulation."""


class SweepSummary(NamedTuple):
    """Numbers of cases of a run of a sweep: requested, already stored, computed now, and not runnable."""

    asked: int
    known: int
    computed: int
    refused: int
    """Number of computed cases that cannot be run; the store contains the reason for each."""


def run_sweep(
    cases: Sequence[SweepCase], store: SweepStore, executor: Executor, progress: Progress = silent
) -> SweepSummary:
    """Predict the cases that are not in the store, and store their results.

    If a worker dies, only its group in progress is lost. Dask gives that group to another worker. With local
    processes, the run ends with an error; finished groups are stored, and a rerun computes the others.

    Raises
    ------
    BadInput : a process died, or several Dask workers died with the same cases
    """
    todo = store.missing(dict.fromkeys(cases))
    known = len(dict.fromkeys(cases)) - len(todo)
    done = refused = 0
    try:
        for part, rows in _results(todo, executor):
            store.add(part, rows)
            done += len(part)
            refused += sum(row["error"] is not None for row in rows)
            progress("predicting", done, len(todo))
    except Exception as error:
        if not (isinstance(error, BrokenExecutor) or type(error).__name__ in DASK_LOST):
            raise
        raise BadInput(
            f"a worker died, killed or out of memory: {done} of {len(todo)} cases are stored and a rerun "
            "goes on from there; fewer --workers need less memory, and a script that sweeps needs "
            "`if __name__ == '__main__':`"
        ) from None
    return SweepSummary(len(cases), known, done, refused)


@checked
def sweep(
    output: str | Path,
    *,
    shapes: Iterable[Sequence[int]],
    gpus: Sequence[str] = ("h200-sxm",),
    patterns: Sequence[str] = ("tile-wise:128",),
    sparsities: Sequence[float] = (0.5, 0.75, 0.9),
    kernels: Sequence[str] = (),
    dtype: str = "fp16",
    engine: str = "model",
    state: str = "burst",
    launch: str = "graph",
    seed: int = 0,
    executor: str = "processes",
    workers: int | None = None,
    as_important_as: str | None = None,
    progress: Progress = silent,
) -> SweepTable:
    """Predict all combinations of GPUs, patterns, sparsities and shapes (M, K, N), and store them in a file.

    Return all results in the file, including those of earlier runs. Worker processes import the calling
    script: it must call this function below `if __name__ == "__main__":`.

    Parameters
    ----------
    output : SQLite file; cases whose results it already contains are not computed again
    shapes : sizes (M, K, N) of the products
    gpus : names or spec files of GPUs
    patterns, sparsities : patterns to prune to, each at every sparsity unless its sparsity is fixed
    kernels : kernels to predict; empty for all that can run a pattern, as in `expand`
    dtype, engine, state, launch : as in `predict`
    seed : seed of the random weights
    executor, workers : address and number of workers, see `open_executor`
    as_important_as : pattern string. Other patterns then get the sparsities at which they retain as much
        importance as this one does at `sparsities`
    progress : called with the progress

    Raises
    ------
    BadInput : an argument cannot be used, or the file does not contain results of a sweep
    """
    cases = expand(
        gpus=gpus,
        shapes=shapes,
        patterns=patterns,
        sparsities=sparsities,
        kernels=kernels,
        dtype=dtype,
        engine=engine,
        state=state,
        launch=launch,
        seed=seed,
    )
    if as_important_as is not None:
        cases = at_equal_importance(cases, as_important_as)
    with open_executor(executor, workers) as where, SweepStore(output) as store:
        run_sweep(cases, store, where, progress)
        return SweepTable(rows=tuple(store.rows()))


def _results(
    todo: Sequence[SweepCase], executor: Executor
) -> Iterator[tuple[list[SweepCase], list[dict[str, Any]]]]:
    """Yield groups of cases with their results, in the order in which they finish."""
    waiting = iter(_parts(todo))
    running: dict[Future[list[dict[str, Any]]], list[SweepCase]] = {}
    # Terminates: every round waits for at least one part, and each is submitted once.
    while True:
        for part in itertools.islice(waiting, IN_FLIGHT - len(running)):
            running[executor.submit(predict_group, part)] = part
        if not running:
            return
        finished, _ = wait(running, return_when=FIRST_COMPLETED)
        # Yield finished parts first, so that they are stored before a failure is raised.
        for future in sorted(finished, key=lambda done: done.exception() is not None):
            yield running.pop(future), future.result()


def _parts(todo: Sequence[SweepCase]) -> Iterator[list[SweepCase]]:
    """Yield groups of cases, the largest first, so that workers finish at about the same time.

    Groups with more cases than `MOST_CASES` are split.
    """
    for group in sorted(groups_of(todo).values(), key=_size, reverse=True):
        most = min(MOST_CASES[case.engine] for case in group)
        for start in range(0, len(group), most):
            yield group[start : start + most]


def _size(group: Sequence[SweepCase]) -> int:
    """Return the number of dense multiply-adds of the largest case in a group.

    The number is equal for groups of one shape, so that sorting by it keeps these groups together.
    """
    return max(case.m * case.k * case.n for case in group)


_ENGINES: dict[str, Callable[..., Outcome]] = {"simulator": simulate, "model": estimate}


def predict_group(cases: Sequence[SweepCase]) -> list[dict[str, Any]]:
    """Predict the cases of one group; return one dictionary per case.

    The keys of a dictionary are `key`, `seconds`, `sparsity_reached`, `bound` and `error`. For a case that
    cannot be run, `error` is the reason and the other results are None.

    Parameters
    ----------
    cases : cases that share one pruned matrix, see `groups_of`
    """
    (key,) = groups_of(cases)
    kept: PrunedMap | BadInput | None = None
    if key.pattern != "dense":
        try:
            kept = _pruned(key)
        except BadInput as error:
            kept = error
    by_elements = isinstance(kept, TileMap) and any(KERNELS[case.kernel].runs_any_mask for case in cases)
    maps = {"csr": _by_elements(key) if by_elements else kept}
    # Cache only bundled specs: a user's file may change between two groups
    bundled = gpu_names()
    specs = {n: _bundled_gpu(n) if n in bundled else load_gpu(n) for n in {case.gpu for case in cases}}
    return [_row(case, maps.get(case.kernel, kept), specs[case.gpu]) for case in cases]


@lru_cache(maxsize=2)
def _by_elements(key: GroupKey) -> PrunedMap:
    """Return the element map for CSR, cached because converting a tile map needs longer than a prediction."""
    kept = _pruned(key)
    return element_map_from_mask(kept.mask(), kept.pattern)


@lru_cache(maxsize=2)
def _pruned(key: GroupKey) -> PrunedMap:
    if key.m * key.k > MOST_DRAWN:
        raise BadInput(f"random weights have at most {MOST_DRAWN} elements, got {key.m}x{key.k}")
    pattern = parse_pattern(key.pattern)
    mask = pattern.prune({"weights": importance_of_group(key)}, key.sparsity)["weights"]
    return pattern.map(mask)


_bundled_gpu = lru_cache(maxsize=64)(load_gpu)


def _row(case: SweepCase, kept: PrunedMap | BadInput | None, gpu: GpuSpec) -> dict[str, Any]:
    row: dict[str, Any] = {"key": case.key(gpu.fingerprint), "seconds": None, "bound": None, "error": None}
    row["sparsity_reached"] = None
    try:
        if isinstance(kept, BadInput):
            raise kept
        plan = _plan(case, kept, gpu)
        run = _ENGINES[case.engine]
        outcome = run(plan, gpu, state=case.state, launch=case.launch)
    except BadInput as error:
        return {**row, "error": str(error)}
    return {**row, "seconds": outcome.seconds, "bound": outcome.bound, "sparsity_reached": plan.sparsity}


def _plan(case: SweepCase, kept: PrunedMap | None, gpu: GpuSpec) -> KernelPlan:
    if kept is None:
        return plan_dense(case.m, case.k, case.n, case.dtype, gpu)
    return fastest_plan(case.kernel, kept, n=case.n, dtype=case.dtype, gpu=gpu)

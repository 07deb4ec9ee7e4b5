"""Cases spread over processes that share one GPU; a case that fails says so and stops no other."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import torch
from settings import Case
from torch import multiprocessing

Work = Callable[[Case], dict[str, Any]]


def run_cases(
    make_work: Callable[..., Work], arguments: tuple[Any, ...], cases: Sequence[Case], processes: int
) -> list[dict[str, Any]]:
    """Results in the order in which they came; each process makes its own `work = make_work(*arguments)`."""
    context = multiprocessing.get_context("spawn")
    todo, done = context.Queue(), context.Queue()
    for case in [*cases, *[None] * processes]:
        todo.put(case)
    running = [
        context.Process(target=_serve, args=(make_work, arguments, todo, done)) for _ in range(processes)
    ]
    for process in running:
        process.start()
    results = [done.get() for _ in cases]
    for process in running:
        process.join()
    return results


def _serve(make_work: Callable[..., Work], arguments: tuple[Any, ...], todo: Any, done: Any) -> None:
    torch.set_num_threads(2)
    work = make_work(*arguments)
    while (case := todo.get()) is not None:
        start = time.perf_counter()
        try:
            result = work(case)
        except Exception:
            result = {"failed": traceback.format_exc(limit=3)}
        result = {"case": case.name, "seconds": round(time.perf_counter() - start, 2), **result}
        print(_line(result), flush=True)
        done.put(result)


def _line(result: dict[str, Any]) -> str:
    runs = " ".join(str(list(run.values())) for run in result.get("runs", []))
    return f"{result['case']} {result['seconds']} s {runs} {result.get('failed', '')}"

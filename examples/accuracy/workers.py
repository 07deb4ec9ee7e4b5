"""Cases spread over processes that share one GPU; a case that fails says so and stops no other."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import torch
from settings import Case
from torch import multiprocessing

Work = Callable[[Case, int], dict[str, Any]]
"""From a case and a seed to the outcome."""


def run_cases(
    make_work: Callable[..., Work],
    arguments: tuple[Any, ...],
    todo: Sequence[tuple[Case, int]],
    *,
    processes: int,
    seconds: float,
) -> list[dict[str, Any]]:
    """Outcomes by case: `{"case": name, "runs": [...]}`, in the order in which cases were first done.

    Each process makes its own `work = make_work(*arguments)`. None begins another run after `seconds`.
    """
    context = multiprocessing.get_context("spawn")
    waiting, done = context.Queue(), context.Queue()
    for one in [*todo, *[None] * processes]:
        waiting.put(one)
    stop = time.time() + seconds
    running = [
        context.Process(target=_serve, args=(make_work, arguments, stop, waiting, done))
        for _ in range(processes)
    ]
    for process in running:
        process.start()
    found: dict[str, list[dict[str, Any]]] = {}
    for _ in todo:
        name, result = done.get()
        found.setdefault(name, []).append(result)
    for process in running:
        process.join()
    return [{"case": name, "runs": sorted(runs, key=lambda run: run["seed"])} for name, runs in found.items()]


def _serve(
    make_work: Callable[..., Work], arguments: tuple[Any, ...], stop: float, waiting: Any, done: Any
) -> None:
    torch.set_num_threads(2)
    work = make_work(*arguments)
    while (one := waiting.get()) is not None:
        case, seed = one
        start = time.perf_counter()
        try:
            result = {"failed": "no time left"} if time.time() > stop else work(case, seed)
        except Exception:
            result = {"failed": traceback.format_exc(limit=3)}
        result = {"seed": seed, **result, "seconds": round(time.perf_counter() - start, 2)}
        print(case.name, list(result.values()), flush=True)
        done.put((case.name, result))

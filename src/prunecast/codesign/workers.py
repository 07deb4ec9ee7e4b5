"""Threads that nobody waits for: Ctrl-C ends the process while they still simulate.

The pools of the standard library join their threads at the end of the process, and a simulation that has
begun cannot be stopped. These threads are daemons.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

__all__ = ["Workers"]

T = TypeVar("T")


class Workers:
    """At most `count` threads, started when there is something to do."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._started = 0
        self._tasks: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Run `call` as soon as a thread is free."""
        future: Future[T] = Future()
        self._tasks.put((future, call))
        if self._started < self._count:
            self._started += 1
            threading.Thread(target=self._work, daemon=True, name=f"prunecast-{self._started}").start()
        return future

    def cancel(self) -> None:
        """Give up what has not begun."""
        while True:
            try:
                future, _ = self._tasks.get_nowait()
            except Empty:
                return
            future.cancel()

    def _work(self) -> None:
        while True:
            future, call = self._tasks.get()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(call())
            except BaseException as error:  # handed on to whoever waits for the result
                future.set_exception(error)

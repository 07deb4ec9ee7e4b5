"""The two engines behind one call: the simulator, and the closed-form model.

Simulations run in daemon threads, so that Ctrl-C ends the process: pools of the standard library join their
threads at its end, and a simulation that has begun cannot be stopped.
"""

import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from prunecast.choice import kept_estimate
from prunecast.errors import BadInput, check_choice
from prunecast.hardware import STATES, GpuSpec
from prunecast.kernels import DTYPE_BYTES, KERNELS, KernelPlan, plan_dense
from prunecast.launch import COLD, L2_STATES, CacheState
from prunecast.models import Estimate
from prunecast.simulator import LAUNCHES, SimResult, simulate

ENGINES = ("simulator", "model")
Outcome = SimResult | Estimate
"""What an engine says about a plan; both have seconds, cycles, clock_hz, occupancy and bound."""
Progress = Callable[[str, int, int], None]
"""Called with a stage, parts done and parts in all; it may print."""
T = TypeVar("T")


def cache_state(l2: str | None, weights: int, dtype: str | None, *, in_model: bool) -> CacheState:
    """The state of L2 as asked for; by default layers of a model find B there, single layers nothing.

    Parameters
    ----------
    l2 : one of `L2_STATES`, or None
    weights : elements of the model's matrices, as if none were pruned
    dtype : theirs; None for one of two bytes
    in_model : the layers run one after the other, on B that the layer before has just written
    """
    name = l2 or ("model" if in_model else "cold")
    return (
        CacheState(name, float(weights * DTYPE_BYTES[dtype or "fp16"]))
        if name == "model"
        else CacheState(name)
    )


class Workers:
    """A pool of `count` threads, started when there is something to do; None: one for each processor."""

    def __init__(self, count: int | None = None) -> None:
        self._count = count
        self._started = 0
        self._tasks: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Run `call` as soon as a thread is free."""
        future: Future[T] = Future()
        self._tasks.put((future, call))
        if self._started < (self._count or os.cpu_count() or 1):
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
        # A daemon thread: it waits for tasks until the process ends.
        while True:
            future, call = self._tasks.get()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(call())
            except BaseException as error:  # handed on to whoever waits for the result
                future.set_exception(error)


def silent(stage: str, done: int, total: int) -> None:
    """The progress hook that says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Engine:
    """An engine on one GPU. Equal plans are run once.

    Layers of one shape share their dense time, and that of 2:4. Simulations run beside each other in threads,
    one per processor: the jitted loop holds no lock.

    Parameters
    ----------
    name : one of `ENGINES`
    gpu : the GPU
    state : `burst` or `sustained`
    launch : `graph` or `stream`, which launch floor is added
    l2 : what of the operands lies in L2
    quick_lists : simulate no lists of single elements, as of CSR, that issue slots alone bound: a run of
        millions of instructions takes what the closed form says, to 0.03 % on all that was recorded (H200)
    progress : told before a compilation that may take long

    Raises
    ------
    BadInput : a name that is none of these
    """

    name: str
    gpu: GpuSpec
    state: str = "burst"
    launch: str = "graph"
    l2: CacheState = COLD
    quick_lists: bool = False
    progress: Progress = silent
    _known: dict[str, Future[Outcome]] = field(default_factory=dict, init=False, repr=False)
    _threads: Workers = field(default_factory=Workers, init=False, repr=False)

    def __post_init__(self) -> None:
        check_choice("engine", self.name, ENGINES)
        check_choice("state", self.state, STATES)
        check_choice("launch", self.launch, LAUNCHES)
        check_choice("l2", self.l2.name, L2_STATES)

    def run(self, plan: KernelPlan) -> Outcome:
        """Predict the run of a plan. Raises PlanDoesNotFit if no block of it fits on an SM."""
        return self.start(plan).result()

    def start(self, plan: KernelPlan) -> Future[Outcome]:
        """Begin to predict the run of a plan; asking for the result raises what `run` raises."""
        key = plan.timing_key()
        if key not in self._known:
            if self.name == "simulator":
                self._compile(plan.dtype)
                self._known[key] = self._threads.submit(lambda: self._simulate(plan))
            else:
                self._known[key] = _finished(lambda: self.estimate(plan))
        return self._known[key]

    def estimate(self, plan: KernelPlan) -> Estimate:
        """Return the closed-form estimate of a plan, whatever engine predicts the outcome.

        Searches compare thousands of plans that come only once, so nothing is looked up or kept.
        """
        return kept_estimate(plan, self.gpu, self.state, self.launch, self.l2)

    def estimated_seconds(self, plans: Iterable[KernelPlan]) -> float:
        """Return the closed-form seconds of launches that follow each other."""
        return sum(self.estimate(plan).seconds for plan in plans)

    def stop(self) -> None:
        """Give up what was started and not yet begun."""
        self._threads.cancel()

    def _compile(self, dtype: str) -> None:
        """Simulate a tiny product first, so that a wait for the compiler is reported as one.

        It has the dtype of the first plan: a GPU without fp16 tensor cores runs fp32 only.
        """
        if not self._known:
            self.progress("compiling the simulator (first run only)", 0, 1)
            self._simulate(plan_dense(64, 64, 64, dtype, self.gpu))
            self.progress("simulating", 0, 1)

    def _simulate(self, plan: KernelPlan) -> Outcome:
        if self.quick_lists and KERNELS[plan.kernel].runs_any_mask:
            estimate = self.estimate(plan)
            if estimate.bound == "issue":
                return estimate
        return simulate(plan, self.gpu, state=self.state, launch=self.launch, l2=self.l2)


def _finished(call: Callable[[], Outcome]) -> Future[Outcome]:
    """A future that has run in this thread."""
    future: Future[Outcome] = Future()
    try:
        future.set_result(call())
    except BadInput as error:
        future.set_exception(error)
    return future

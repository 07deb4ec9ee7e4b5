"""One interface to the two engines: the simulator and the closed-form model.

Simulations run in daemon threads, so that Ctrl-C ends the process. Thread pools of the standard library join
their threads at exit, and a running simulation cannot be interrupted.
"""

import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from prunecast.arguments import checked
from prunecast.choice import kept_estimate
from prunecast.errors import BadInput, check_choice
from prunecast.hardware import GpuSpec
from prunecast.kernels import DTYPE_BYTES, KERNELS, KernelPlan, plan_dense
from prunecast.launch import COLD, USUAL, CacheState, Conditions, launch_context
from prunecast.models import Estimate
from prunecast.simulator import Guess, SimResult, simulate_launch

ENGINES = ("simulator", "model")
Outcome = SimResult | Estimate
"""Result of an engine for a plan. Both types have seconds, cycles, clock_hz, occupancy and bound."""
Progress = Callable[[str, int, int], None]
"""Progress hook, called with the stage, the number of finished parts and the total. It may print."""
T = TypeVar("T")


def check_dtype_of_plans(dtype: str, what: str) -> None:
    """Raise BadInput for an unknown dtype, and for one in which a dense product is more than its plan.

    Parameters
    ----------
    what : a question that is answered by the times of plans, such as `a sweep`, for the message
    """
    if check_choice("dtype", dtype, DTYPE_BYTES) == "fp8":
        raise BadInput(f"dtype fp8: {what} has no quantising of x, which `predict` counts")


def cache_state(l2: str | None, weights: int, dtype: str | None, *, in_model: bool) -> CacheState:
    """Return the L2 state `l2`, or the default: `model` for layers of a model, `cold` for single layers.

    Parameters
    ----------
    l2 : one of `launch.conditions.L2_STATES`, or None for the default
    weights : elements of the model's matrices before pruning
    dtype : format of these elements; None for a format of two bytes
    in_model : the layers run one after the other, and each reads the B that the layer before it wrote
    """
    name = l2 or ("model" if in_model else "cold")
    return (
        CacheState(name, float(weights * DTYPE_BYTES[dtype or "fp16"]))
        if name == "model"
        else CacheState(name)
    )


def guess_of(plan: KernelPlan, gpu: GpuSpec, conditions: Conditions = USUAL) -> Guess:
    """Return the SM clock and the DRAM writes of the closed form, with which a simulation begins.

    Raises
    ------
    PlanDoesNotFit, BadInput : in the same cases as `models.estimate`
    """
    estimate = kept_estimate(plan, gpu, conditions)
    return Guess(estimate.clock_hz, estimate.written_share)


@checked
def simulate(
    plan: KernelPlan,
    gpu: GpuSpec,
    *,
    state: str = "burst",
    launch: str = "graph",
    l2: CacheState = COLD,
    policy: str = "gty",
) -> SimResult:
    """Return the predicted time of one launch of `plan` on `gpu`, and its utilization, stalls and traffic.

    The first simulation assumes the SM clock and the DRAM writes that the closed form predicts. It is
    repeated with the clock and writes that result, until assumed and resulting values agree within 2 %. They
    usually agree after the first run.

    Parameters
    ----------
    state, launch, l2 : conditions of the launch, see `launch.conditions`
    policy : warp scheduler, a key of `simulator.POLICIES`

    Raises
    ------
    PlanDoesNotFit, BadInput, SimulationStopped : in the same cases as `simulator.simulate`
    """
    conditions = Conditions(state, launch, l2)
    context, guess = launch_context(plan, gpu, conditions), guess_of(plan, gpu, conditions)
    return simulate_launch(context, policy=policy, guess=guess)


class Workers:
    """Pool of up to `count` daemon threads (None: one per processor). They start when tasks are submitted."""

    def __init__(self, count: int | None = None) -> None:
        self._count = count
        self._started = 0
        self._tasks: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Queue `call` for the next free thread and return its future."""
        future: Future[T] = Future()
        self._tasks.put((future, call))
        if self._started < (self._count or os.cpu_count() or 1):
            self._started += 1
            threading.Thread(target=self._work, daemon=True, name=f"prunecast-{self._started}").start()
        return future

    def cancel(self) -> None:
        """Cancel all tasks that have not started."""
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
            except BaseException as error:  # raised again by future.result()
                future.set_exception(error)
            del future, call  # so that a waiting thread does not hold a plan in memory


QUICK_FROM_S = 80e-6
"""Seconds from which both engines agree to 0.1 % on launches of single elements (CSR) that are bound by issue
slots; for a launch of 12 us they differ by 1.4 %. Kind: choice, six random lists of 82 to 843 us (H200,
2026-11-28)."""


def silent(stage: str, done: int, total: int) -> None:
    """Do nothing; the default progress hook."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Engine:
    """A prediction engine for one GPU, with a cache of results: equal plans run once.

    For example, layers of one shape share their dense time. Simulations run concurrently in threads,
    one per processor: the compiled loop releases the GIL.

    Parameters
    ----------
    name : one of `ENGINES`
    gpu : the GPU
    conditions : clock, launch mode and contents of L2
    quick_lists : for kernels that run any mask (such as CSR), use the closed form instead of the simulator if
        issue slots are the bound and the launch needs at least `QUICK_FROM_S`
    progress : hook that reports the JIT compilation of the simulator, which may need long

    Raises
    ------
    BadInput : an unknown engine
    """

    name: str
    gpu: GpuSpec
    conditions: Conditions = USUAL
    quick_lists: bool = False
    progress: Progress = silent
    _known: dict[str, Future[Outcome]] = field(default_factory=dict, init=False, repr=False)
    _threads: Workers = field(default_factory=Workers, init=False, repr=False)

    def __post_init__(self) -> None:
        check_choice("engine", self.name, ENGINES)

    def run(self, plan: KernelPlan) -> Outcome:
        """Return the prediction for a plan. Raise PlanDoesNotFit if no thread block of it fits on an SM."""
        return self.start(plan).result()

    def start(self, plan: KernelPlan) -> Future[Outcome]:
        """Start the prediction of a plan and return its future, which raises the same errors as `run`."""
        key = plan.timing_key()
        if key not in self._known:
            if self.name == "simulator":
                self._compile(plan.dtype)
                self._known[key] = self._threads.submit(lambda: self._simulate(plan))
            else:
                self._known[key] = _finished(lambda: self.estimate(plan))
        return self._known[key]

    def estimate(self, plan: KernelPlan) -> Estimate:
        """Return the closed-form estimate of a plan, even if the engine is the simulator.

        Nothing is cached here: searches compare thousands of plans that occur only once.
        """
        return kept_estimate(plan, self.gpu, self.conditions)

    def estimated_seconds(self, plans: Iterable[KernelPlan]) -> float:
        """Return the sum of the closed-form seconds of launches that follow each other."""
        return sum(self.estimate(plan).seconds for plan in plans)

    def simulated_seconds(self, plans: Iterable[KernelPlan]) -> float:
        """Return the sum of the simulated seconds of launches, even if the engine is the closed form."""
        # The cache of `run` contains results of this engine only: those of a closed form are no simulations
        run = self.run if self.name == "simulator" else self._simulate
        return sum(run(plan).seconds for plan in plans)

    def stop(self) -> None:
        """Cancel the predictions that have not started."""
        self._threads.cancel()

    def _compile(self, dtype: str) -> None:
        """Simulate a tiny product first, so that the wait for the JIT compiler is reported as compilation.

        The product has the dtype of the first plan, because a GPU without fp16 tensor cores runs only fp32.
        """
        if not self._known:
            self.progress("compiling the simulator (first run only)", 0, 1)
            self._simulate(plan_dense(64, 64, 64, dtype, self.gpu))
            self.progress("simulating", 0, 1)

    def _simulate(self, plan: KernelPlan) -> Outcome:
        """Return the simulation of a plan, without the cache; with `quick_lists` it may be an estimate."""
        if self.quick_lists and KERNELS[plan.kernel].runs_any_mask:
            estimate = self.estimate(plan)
            if estimate.bound == "issue" and estimate.seconds >= QUICK_FROM_S:
                return estimate
        guess = guess_of(plan, self.gpu, self.conditions)
        return simulate_launch(launch_context(plan, self.gpu, self.conditions), guess=guess)


def _finished(call: Callable[[], Outcome]) -> Future[Outcome]:
    """Return the future of a call that has run in this thread."""
    future: Future[Outcome] = Future()
    try:
        future.set_result(call())
    except BadInput as error:
        future.set_exception(error)
    return future

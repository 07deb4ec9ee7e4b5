"""The two engines behind one call: the simulator, and the closed-form model."""

from collections.abc import Callable
from dataclasses import dataclass, field

from prunecast.codesign.choice import check_choice
from prunecast.hardware import STATES, GpuSpec
from prunecast.kernels import PLANNERS, KernelPlan
from prunecast.models import Estimate, estimate
from prunecast.simulator import LAUNCHES, SimResult, simulate

__all__ = ["ENGINES", "Engine", "Outcome", "Progress", "silent"]

ENGINES = ("simulator", "model")

Outcome = SimResult | Estimate
"""What an engine says about a plan; both have seconds, cycles, clock_hz, occupancy and bound."""

Progress = Callable[[str, int, int], None]
"""Called with a stage, parts done and parts in all; it may print."""


def silent(stage: str, done: int, total: int) -> None:
    """The progress hook that says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Engine:
    """An engine on one GPU. Equal plans are run once: layers of one shape share their dense time.

    Parameters
    ----------
    name : one of `ENGINES`
    gpu : the GPU
    state : `burst` or `sustained`
    launch : `graph` or `stream`, which launch floor is added
    progress : told before a compilation that may take long

    Raises
    ------
    BadInput : a name that is none of these
    """

    name: str
    gpu: GpuSpec
    state: str = "burst"
    launch: str = "graph"
    progress: Progress = silent
    _known: dict[str, Outcome] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        check_choice("engine", self.name, ENGINES)
        check_choice("state", self.state, STATES)
        check_choice("launch", self.launch, LAUNCHES)

    def run(self, plan: KernelPlan) -> Outcome:
        """Predict the run of a plan. Raises PlanDoesNotFit if no block of it fits on an SM."""
        key = plan.fingerprint()
        if key not in self._known:
            if self.name == "simulator":
                self._known[key] = self._simulate(plan)
            else:
                self._known[key] = estimate(plan, self.gpu, state=self.state, launch=self.launch)
        return self._known[key]

    def _simulate(self, plan: KernelPlan) -> SimResult:
        if not self._known:
            # A tiny run first, so that a wait for the compiler is called what it is.
            self.progress("compiling the simulator (first run only)", 0, 1)
            tiny = PLANNERS["dense"](64, 64, 64, "fp16", self.gpu)
            simulate(tiny, self.gpu, state=self.state, launch=self.launch)
        return simulate(plan, self.gpu, state=self.state, launch=self.launch)

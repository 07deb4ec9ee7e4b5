"""The two engines behind one call: the simulator, and the closed-form model."""

from collections.abc import Callable
from dataclasses import dataclass, field

from prunecast.codesign.choice import check_choice
from prunecast.hardware.clock import STATES
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.plan import KernelPlan
from prunecast.kernels.planners import PLANNERS
from prunecast.models.estimate import Estimate
from prunecast.simulator.result import SimResult

__all__ = ["ENGINES", "LAUNCHES", "Engine", "Outcome", "Progress", "silent"]

ENGINES = ("simulator", "model")
LAUNCHES = ("graph", "stream")

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
            self._known[key] = self._simulate(plan) if self.name == "simulator" else self._estimate(plan)
        return self._known[key]

    def _estimate(self, plan: KernelPlan) -> Estimate:
        # Imported where they run: Numba takes half a second that listing kernels need not pay.
        from prunecast.models import estimate

        return estimate(plan, self.gpu, state=self.state, launch=self.launch)

    def _simulate(self, plan: KernelPlan) -> SimResult:
        from prunecast.simulator import simulate

        if not self._known:
            self.progress("compiling the simulator (first run only)", 0, 1)
            tiny = PLANNERS["dense"](64, 64, 64, "fp16", self.gpu)
            simulate(tiny, self.gpu, state=self.state, launch=self.launch)
        return simulate(plan, self.gpu, state=self.state, launch=self.launch)

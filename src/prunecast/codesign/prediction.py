"""`Prediction`: the predicted time of one layer with one kernel."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from prunecast.hardware import GpuSpec
from prunecast.kernels import KernelPlan
from prunecast.launch import Conditions
from prunecast.simulator import SimResult
from prunecast.text import Cells, table_html
from prunecast.workload.engines import Outcome, simulate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prediction:
    """The predicted time of C (M, N) = A (M, K) @ B (K, N) for one layer and kernel.

    Parameters
    ----------
    layer : name of the weight tensor
    m, k, n : rows of A, columns of A, and tokens
    dtype : number format of A and B: `fp16`, `bf16`, `fp32`, `fp8` or `int8`
    pattern : canonical pattern string of the pruned weights
    sparsity : achieved share of the weights that is removed
    kernel : name of the kernel
    engine : engine that predicted the time, `simulator` or `model`
    conditions : clock, launch mode and contents of L2; files contain the clock only
    seconds : predicted time, including the launch overhead
    seconds_low, seconds_high : interval of the time, see `codesign/interval.py`
    speedup_over_dense : time of the dense kernel on the same layer over this time
    bound : the busiest unit of the GPU, or `latency` if no unit is busy half of the time
    note : remarks on this prediction, or empty
    packed_bytes : bytes of packed weights and indices of the layer as the kernel reads them; 0 for dense
    planned : returns the predicted plan. If a model is too large to keep all plans in memory, the first call
        plans again
    result : result of the engine
    gpu : the GPU. Files contain neither this field nor `packed_bytes`, `planned` and `result`
    """

    layer: str
    m: int
    k: int
    n: int
    dtype: str
    pattern: str
    sparsity: float
    kernel: str
    engine: str
    conditions: Conditions
    seconds: float
    seconds_low: float
    seconds_high: float
    speedup_over_dense: float
    bound: str
    note: str = ""
    packed_bytes: float = field(repr=False)
    planned: Callable[[], KernelPlan] = field(repr=False)
    result: Outcome = field(repr=False)
    gpu: GpuSpec = field(repr=False)

    @property
    def plan(self) -> KernelPlan:
        """The predicted plan."""
        return self.planned()

    @property
    def state(self) -> str:
        """State of the SM clock, `burst` or `sustained`."""
        return self.conditions.state

    @property
    def latency_us(self) -> float:
        """Predicted time in microseconds."""
        return self.seconds * 1e6

    def row(self) -> dict[str, Any]:
        """Return the fields that are stored in files, in order."""
        return {name: getattr(self, name) for name in _ROW_FIELDS}

    def cells(self) -> Cells:
        """Return the fields as texts for a table."""
        us = [f"{1e6 * seconds:.2f}" for seconds in (self.seconds, self.seconds_low, self.seconds_high)]
        return {
            **{"layer": self.layer, "M": str(self.m), "K": str(self.k), "N": str(self.n)},
            **{"kernel": self.kernel, "pattern": self.pattern, "sparsity": f"{self.sparsity:.3f}"},
            **{"us": us[0], "90 % interval, us": f"{us[1]} to {us[2]}"},
            **{"over dense": f"{self.speedup_over_dense:.2f}x", "bound": self.bound},
        }

    def plot_roofline(self, axes: "Axes | None" = None) -> "Axes":
        """Draw the roofline on `axes` or on a new figure: the attained FLOP/s over FLOP per byte."""
        from prunecast.axes import new_axes
        from prunecast.codesign.pictures.plots import RooflinePoint, draw_roofline

        axes = new_axes(5.0, 3.4) if axes is None else axes
        point = RooflinePoint(self.kernel, self.seconds, self.plan, self.result)
        draw_roofline([point], self.gpu, axes)
        return axes

    def plot_work(self, axes: "Axes | None" = None) -> "Axes":
        """Draw the work of each SM in cycles, the busiest SM first, on `axes` or on a new figure.

        After a closed-form prediction, the plan is simulated to obtain the work of each SM.
        """
        from prunecast.axes import new_axes
        from prunecast.codesign.pictures.plots import draw_sm_work

        result = self.result
        if not isinstance(result, SimResult):
            at = self.conditions
            result = simulate(self.plan, self.gpu, state=at.state, launch=at.launch, l2=at.l2)
        axes = new_axes(5.0, 2.6) if axes is None else axes
        draw_sm_work(result, self.kernel, axes)
        return axes

    def plot_timeline(self, axes: "Axes | None" = None, *, sm: int = 0, first_waves: int = 1) -> "Axes":
        """Draw the activity of each warp of one SM over time, on `axes` or on a new figure.

        The plan is simulated again to record the activity, also after a closed-form prediction.

        Parameters
        ----------
        sm : index of the SM
        first_waves : number of work items to draw for each block slot of the SM

        Raises
        ------
        BadInput : the GPU has no such SM, or `first_waves` is less than 1
        """
        from prunecast.axes import new_axes
        from prunecast.codesign.pictures.plots import draw_timeline

        drawn = new_axes(8.0, 4.0) if axes is None else axes
        draw_timeline(self.plan, self.gpu, drawn, sm=sm, first_waves=first_waves, conditions=self.conditions)
        if axes is None:  # keep the label of every warp readable
            cast("Figure", drawn.figure).set_figheight(max(4.0, 1.2 + 0.16 * len(drawn.get_yticks())))
        return drawn

    def _repr_html_(self) -> str:
        return table_html([self.cells()])


NOT_STORED = ("packed_bytes", "planned", "result", "gpu")
_ROW_FIELDS = tuple(
    "state" if name == "conditions" else name for name in Prediction.__slots__ if name not in NOT_STORED
)

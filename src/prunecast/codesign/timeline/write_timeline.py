"""`write_timeline`: record the run of a plan and write its trace."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from prunecast.codesign.timeline.chrome_trace import trace_bytes
from prunecast.codesign.timeline.slices import slices_of
from prunecast.errors import BadInput
from prunecast.files import aside, check_writable
from prunecast.hardware import GpuSpec
from prunecast.kernels import KernelPlan
from prunecast.simulator import engine
from prunecast.simulator.record import record

MOST_SLICES = 200_000
"""A trace of so many slices takes a few MB, and Perfetto opens it at once."""


class TimelineSummary(NamedTuple):
    """What was written."""

    path: Path
    slices: int
    file_bytes: int
    seconds: float
    """Time of the whole run without the launch floor."""
    shown_seconds: float
    """End of the last slice."""


def write_timeline(
    plan: KernelPlan,
    gpu: GpuSpec,
    path: str | Path,
    *,
    sms: Sequence[int] = (0, 1, 2, 3),
    first_waves: int | None = 2,
    state: str = "burst",
    most_slices: int = MOST_SLICES,
) -> TimelineSummary:
    """Write the trace of `plan` on `gpu` to `path`, gzipped; open it at ui.perfetto.dev or chrome://tracing.

    Parameters
    ----------
    sms : numbers of the SMs to show
    first_waves : show the first so many items of each block slot; None shows all
    state : `burst` or `sustained`
    most_slices : refuse a trace of more

    Raises
    ------
    BadInput : an SM that the GPU lacks, more slices than allowed, or a file that cannot be written
    PlanDoesNotFit, SimulationStopped : as `simulate`
    """
    path = Path(path)
    if path.suffix != ".gz":
        raise BadInput(f"a timeline needs a file .json.gz, got {path}")
    check_writable(path, "a timeline")
    recording = record(plan, gpu, sms=sms, waves=first_waves, state=state)
    groups = list(slices_of(recording))
    slices = sum(len(group.names) for group in groups)
    if recording.dropped or slices > most_slices:
        raise BadInput(
            f"the timeline has {slices} slices or more, allowed are {most_slices}: show fewer SMs or waves"
        )
    roles = [plan.programs[role].role for role in recording.roles.tolist()]
    title = f"{plan.kernel} {plan.m} x {plan.k}, {plan.n} tokens, {plan.pattern}, {gpu.name}"
    content = trace_bytes(recording, groups, title=title, roles=roles)
    with aside(path) as unfinished:
        unfinished.write_bytes(content)
    last = max((int(group.stop.max()) for group in groups if len(group.stop)), default=0)
    return TimelineSummary(
        path,
        slices,
        len(content),
        recording.cycles / recording.clock_hz,
        last / engine.TICKS / recording.clock_hz,
    )

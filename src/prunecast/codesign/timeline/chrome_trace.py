"""Writer of trace files: gzipped JSON in the Chrome trace event format.

The same recording always gives the same bytes. The format is the "Trace Event Format" of the Chromium
project: complete events `X` and counters `C`, with `ts` and `dur` in microseconds, and metadata `M` with the
names of processes and threads. Viewers store whole nanoseconds. Both ends of a slice are therefore rounded to
nanoseconds, and `args` contains the exact number of cycles.
"""

import gzip
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from prunecast.arguments import checked
from prunecast.codesign.timeline.slices import IntColumns, Slices, Track, slices_of
from prunecast.errors import BadInput
from prunecast.files import aside, check_writable
from prunecast.hardware import GpuSpec
from prunecast.kernels import KernelPlan
from prunecast.launch import Conditions
from prunecast.simulator import engine
from prunecast.simulator.simulate import Recording, record
from prunecast.workload.engines import guess_of

GPU_PROCESS = 1
FIRST_SM_PROCESS = 2
KINDS = ("tensor", "issue", "block", "warp")
MOST_LANES = 64
"""Thread numbers of a trace that are reserved for the sub-partitions of an SM, and for the warps of a
block."""
COMPRESSION = 6
"""Level of gzip. Kind: choice, its default."""


def trace_bytes(recording: Recording, slices: Sequence[Slices], *, title: str, roles: Sequence[str]) -> bytes:
    """Return a recording as the gzipped content of a trace file.

    Parameters
    ----------
    recording : recording of the simulator
    slices : slices of the recording, see `slices_of`
    title : title of the run, shown with the GPU's counters
    roles : role of each warp of a block, such as producer or consumer
    """
    ns_per_tick = 1e9 / recording.clock_hz / engine.TICKS
    tracks = list(dict.fromkeys(group.track for group in slices))
    lines = [
        *_names(tracks, title, roles),
        *_counters(recording),
        *(line for group in slices for line in _events(group, ns_per_tick)),
    ]
    text = '{"displayTimeUnit":"ns","traceEvents":[\n' + ",\n".join(lines) + "\n]}\n"
    return gzip.compress(text.encode(), COMPRESSION, mtime=0)


def _names(tracks: Iterable[Track], title: str, roles: Sequence[str]) -> Iterator[str]:
    yield _metadata("process_name", GPU_PROCESS, 0, name=f"GPU: {title}")
    tracks = list(tracks)
    for sm in dict.fromkeys(track.sm for track in tracks):
        yield _metadata("process_name", FIRST_SM_PROCESS + sm, 0, name=f"SM {sm}")
        yield _metadata("process_sort_index", FIRST_SM_PROCESS + sm, 0, sort_index=FIRST_SM_PROCESS + sm)
    for track in tracks:
        pid, tid = FIRST_SM_PROCESS + track.sm, _thread(track)
        yield _metadata("thread_name", pid, tid, name=_name(track, roles))
        yield _metadata("thread_sort_index", pid, tid, sort_index=tid)


def _metadata(what: str, pid: int, tid: int, **values: str | int) -> str:
    return json.dumps({"ph": "M", "name": what, "pid": pid, "tid": tid, "args": values})


def _thread(track: Track) -> int:
    """Return the thread number of a track in the trace.

    The sub-partitions of the SM come first, then each block slot with its warps.
    """
    if track.slot < 0:
        return 1 + KINDS.index(track.kind) * MOST_LANES + track.lane
    place = 0 if track.kind == "block" else 1 + track.lane
    return 1 + 2 * MOST_LANES + track.slot * (MOST_LANES + 1) + place


def _name(track: Track, roles: Sequence[str]) -> str:
    if track.slot < 0:
        return f"sub-partition {track.lane} {track.kind}"
    if track.kind == "block":
        return f"block slot {track.slot}"
    return f"block slot {track.slot}, warp {track.lane}, {roles[track.lane]}"


def _counters(recording: Recording) -> Iterator[str]:
    """Yield counter events: the busy share of DRAM and of the tensor pipes after each sample.

    A share is the mean over the interval until the next sample, and for tensor pipes also over the pipes.
    """
    cycles = recording.sample_cycles
    ns = np.round(cycles / recording.clock_hz * 1e9).astype(np.int64)
    for name, work in (("DRAM", recording.dram_cycles), ("tensor", recording.tensor_cycles)):
        share = np.append(np.diff(work) / np.diff(cycles), 0.0)
        for at, percent in zip(ns.tolist(), (100 * share).tolist(), strict=True):
            yield (
                f'{{"ph":"C","name":"{name} use, %","pid":{GPU_PROCESS},"tid":0,"ts":{_us(at)},'
                f'"args":{{"use":{percent:.3f}}}}}'
            )


def _events(group: Slices, ns_per_tick: float) -> Iterator[str]:
    start, stop = _ns(group.start, ns_per_tick), _ns(group.stop, ns_per_tick)
    head = f'"cat":"{group.category}","pid":{FIRST_SM_PROCESS + group.track.sm},"tid":{_thread(group.track)}'
    cycles = ((group.stop - group.start) / engine.TICKS).tolist()
    for name, begin, end, length in zip(group.names, start, stop, cycles, strict=True):
        yield (
            f'{{"ph":"X","name":"{name}",{head},"ts":{_us(begin)},"dur":{_us(end - begin)},'
            f'"args":{{"cycles":{length:.12g}}}}}'
        )


def _ns(ticks: IntColumns, ns_per_tick: float) -> list[int]:
    return [int(ns) for ns in np.round(ticks * ns_per_tick)]


def _us(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


MOST_SLICES = 200_000
"""Default limit of slices. A trace of this size has a few MB, and Perfetto opens it at once."""


class TimelineSummary(NamedTuple):
    """Path, size and times of a trace file that was written."""

    path: Path
    slices: int
    file_bytes: int
    seconds: float
    """Seconds of the whole run without the launch overhead."""
    shown_seconds: float
    """Time at which the last slice of the trace ends, in seconds from the start of the run."""


@checked
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
    """Simulate `plan` on `gpu` and write a trace of it to `path`.

    The file can be opened at ui.perfetto.dev or chrome://tracing.

    Parameters
    ----------
    path : name of the file, which ends in `.json.gz` (compressed) or `.json`
    sms : indices of the SMs to show
    first_waves : number of work items to show for each block slot; None shows all
    state : state of the SM clock, `burst` or `sustained`
    most_slices : largest number of slices that is allowed

    Raises
    ------
    BadInput : the GPU lacks an SM, there are more slices than allowed, or the file cannot be written
    PlanDoesNotFit, SimulationStopped : in the same cases as `simulate`
    """
    path = Path(path)
    if not path.name.endswith((".json.gz", ".json")):
        raise BadInput(f"a timeline needs a file .json.gz or .json, got {path}")
    if most_slices < 1:
        raise BadInput(f"most_slices (--max-slices) must be at least 1, got {most_slices}")
    check_writable(path, "a timeline")
    conditions = Conditions(state)
    guess = guess_of(plan, gpu, conditions)
    recording = record(plan, gpu, sms=sms, waves=first_waves, conditions=conditions, guess=guess)
    groups = list(slices_of(recording))
    slices = sum(len(group.names) for group in groups)
    if recording.dropped or slices > most_slices:
        raise BadInput(
            f"the timeline has {slices} slices or more, allowed are {most_slices}: show fewer SMs or waves"
        )
    roles = [plan.programs[role].role for role in recording.roles.tolist()]
    title = f"{plan.kernel} {plan.m} x {plan.k}, {plan.n} tokens, {plan.pattern}, {gpu.name}"
    content = trace_bytes(recording, groups, title=title, roles=roles)
    if path.suffix == ".json":
        content = gzip.decompress(content)
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

"""The trace file: JSON of the Chrome trace event format, gzipped, the same bytes for the same recording.

Format: "Trace Event Format" of the Chromium project: complete events `X` and counters `C` with `ts` and `dur`
in microseconds, metadata `M` that names processes and threads. Viewers hold whole nanoseconds, so times are
rounded to them, both ends of a slice alike, and `args` keep the exact cycles.
"""

import gzip
import json
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from prunecast.codesign.timeline.slices import IntColumns, Slices, Track
from prunecast.simulator import engine
from prunecast.simulator.record import Recording

GPU_PROCESS = 1
FIRST_SM_PROCESS = 2
KINDS = ("tensor", "issue", "block", "warp")
MOST_LANES = 64
COMPRESSION = 6


def trace_bytes(recording: Recording, slices: Sequence[Slices], *, title: str, roles: Sequence[str]) -> bytes:
    """The gzipped trace.

    Parameters
    ----------
    title : what was run, shown beside the GPU's counters
    roles : name of the role of each warp of a block
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
    """Sub-partitions first, then each block slot with its warps."""
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
    """Share of the interval that begins with each sample in which DRAM and a mean tensor pipe work."""
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

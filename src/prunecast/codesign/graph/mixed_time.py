"""`mixed_time`: the mean time of a pass where a model is run in several kinds of passes."""

from collections.abc import Sequence
from itertools import chain

from prunecast.codesign.graph.model_time import ModelTime


def mixed_time(passes: Sequence[tuple[float, ModelTime]]) -> ModelTime:
    """Times with their shares as one: sums times shares; the critical path is that of the longest pass."""
    if len(passes) == 1 and passes[0][0] == 1.0:
        return passes[0][1]
    longest = max((time for _, time in passes), key=lambda time: time.critical_seconds)
    return ModelTime(
        seconds_of=_summed([(share, time.seconds_of) for share, time in passes]),
        kind_of=dict(chain.from_iterable(time.kind_of.items() for _, time in passes)),
        transposes=tuple(dict.fromkeys(chain.from_iterable(time.transposes for _, time in passes))),
        turning_seconds=_summed([(share, time.turning_seconds) for share, time in passes]),
        critical_path=longest.critical_path,
        critical_seconds=sum(share * time.critical_seconds for share, time in passes),
    )


def _summed(parts: Sequence[tuple[float, dict[str, float]]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for share, seconds in parts:
        for name, own in seconds.items():
            total[name] = total.get(name, 0.0) + share * own
    return total

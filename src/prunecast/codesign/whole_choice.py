"""Choose the kernel of each layer by the time of the whole pass.

The kernel that is fastest for a layer may slow down the pass: sparse kernels read transposed inputs, and an
activation or a residual add can be in the epilogue of some kernels only.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache

from prunecast.codesign.prediction import Prediction
from prunecast.kernels import KERNELS
from prunecast.text import milliseconds
from prunecast.workload.graph import ModelGraph
from prunecast.workload.workload import WorkloadLayer

Rows = Mapping[str, Prediction]
"""Layer -> its row in the prediction table."""


def fastest_rows(
    layers: Sequence[WorkloadLayer],
    rows_of: Mapping[str, Sequence[Prediction]],
    graph: ModelGraph,
    seconds: Callable[[Rows], float],
) -> Rows:
    """Return the row of each layer with which a pass is fastest; the pass is never slower than dense.

    Layers of equal size with equal neighbours in the graph (the same layer of every transformer block) get
    kernels of the same kind: dense, or the fastest sparse kernel that fuses epilogues, or that does not.

    Parameters
    ----------
    layers : layers of one pass, in the order of the model
    rows_of : layer -> its rows, dense first
    graph : graph of the pass
    seconds : returns the time of the pass with one row for each layer
    """
    groups: dict[object, list[str]] = {}
    for layer in layers:
        groups.setdefault(role_of(layer, graph), []).append(layer.name)
    options = [[*_options([rows_of[name] for name in names])] for names in groups.values()]

    def rows(choice: Sequence[int]) -> dict[str, Prediction]:
        return {row.layer: row for own, place in zip(options, choice, strict=True) for row in own[place]}

    alone = tuple(
        min(range(len(own)), key=lambda place: sum(row.seconds for row in own[place])) for own in options
    )
    found = fastest_choice([len(own) for own in options], lambda choice: seconds(rows(choice)), alone)
    return rows(found)


def dense_remark(
    layers: Sequence[WorkloadLayer], alone: Rows, chosen: Rows, times_s: tuple[float, float]
) -> str:
    """Return a line on layers that stay dense although a sparse kernel is faster for them; else empty.

    Parameters
    ----------
    alone : layer -> its fastest row
    chosen : layer -> its row in the fastest pass
    times_s : seconds of the pass with the rows `alone`, and with the rows `chosen`
    """

    def is_dense(rows: Rows, layer: WorkloadLayer) -> bool:
        return KERNELS[rows[layer.name].kernel].is_baseline

    dense = [layer.name for layer in layers if is_dense(chosen, layer) and not is_dense(alone, layer)]
    if not dense:
        return ""
    names = f"{dense[0]} stays" if len(dense) == 1 else f"{dense[0]} and {len(dense) - 1} more stay"
    sparse_ms, best_ms = map(milliseconds, times_s)
    why = "transposes and separate operators would cost more than sparse kernels save"
    return f"{names} dense: {why} (pass {best_ms} ms, else {sparse_ms})"


def fastest_choice(
    sizes: Sequence[int], seconds: Callable[[tuple[int, ...]], float], alone: tuple[int, ...]
) -> tuple[int, ...]:
    """Return the index of an option for each group, so that no step of the search makes the pass faster.

    The search begins with the faster of two choices: option 0 (dense) of every group, and `alone`. A step
    changes one group, or two consecutive groups to options of the same index: both products around an
    activation must be sparse for a fused epilogue.

    Parameters
    ----------
    sizes : number of options of each group
    seconds : returns the time of the pass for a choice
    alone : index of the option of each group that is fastest without the rest of the pass
    """
    timed = cache(seconds)
    best = min((0,) * len(sizes), alone, key=timed)
    is_better = True
    while is_better:
        is_better = False
        for width in (1, 2):
            for first in range(len(sizes) + 1 - width):
                for option in range(max(sizes[first : first + width])):
                    changed = [min(option, size - 1) for size in sizes[first : first + width]]
                    near = (*best[:first], *changed, *best[first + width :])
                    if timed(near) < timed(best):
                        best, is_better = near, True
    return best


def role_of(layer: WorkloadLayer, graph: ModelGraph) -> object:
    """Return a key that layers of equal size with equal neighbours in the graph share."""
    name, size = next(iter(layer.stands_for), layer.name), (layer.shape, layer.n, layer.convolution)
    if name not in graph.graph:  # a matrix outside of the graph, such as a pooler
        return size
    around = [[other.kind for other in others] for others in (graph.sources(name), graph.readers(name))]
    return (*size, *map(tuple, around))


def _options(layers: Sequence[Sequence[Prediction]]) -> Iterator[list[Prediction]]:
    """Yield the options of a group, dense first; each is a list with one row for each of its layers."""
    yield [rows[0] for rows in layers]
    for fuses in (True, False):
        own = [[row for row in rows[1:] if KERNELS[row.kernel].fuses_in_torch == fuses] for rows in layers]
        if any(own):
            found = zip(layers, own, strict=True)
            yield [min(sparse or rows[:1], key=lambda row: row.seconds) for rows, sparse in found]

"""`rows_of`: the rows of a result table. Layers with random weights and equal sizes share a row."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.patterns.sources import FilterShape
from prunecast.patterns.sources.weight_set import OneAtATime
from prunecast.workload.random_weights import MOST_DRAWN, MOST_REMEMBERED_WEIGHTS, heavy_tailed
from prunecast.workload.workload import Workload, WorkloadLayer


def rows_of(workload: Workload) -> dict[str, WorkloadLayer]:
    """Return row name -> row of a result table: each layer of each pass, with its N in that pass.

    Layers with random weights share a row if their shape, N, convolution and part of an MoE layer are equal.
    Raise BadInput for a matrix that is too large to be drawn at random.
    """
    rows: dict[str, WorkloadLayer] = {}
    drawn: dict[tuple[int, int], Callable[[], npt.NDArray[Any]]] = {}
    elements = sum(m * k for m, k in {layer.shape for layer in workload.layers.values()})
    # A table of one pass reads the weights row by row, and each only once: cache only the last matrix
    is_large = elements > MOST_REMEMBERED_WEIGHTS and len(workload.passes) == 1
    held = OneAtATime() if is_large else None
    for place, run in enumerate(workload.passes):
        first: dict[tuple[object, ...], str] = {}
        for name, layer in workload.layers.items():
            n = layer.tokens[place]
            if n == 0:
                continue
            conv, fused = layer.convolution, None
            if workload.graphs:
                conv, fused = workload.graphs[place][name].convolution, workload.graphs[place][name].experts
            row = f"{name} {run.label}".rstrip() if len(workload.passes) > 1 else name
            if workload.form == "standard":
                alike = None if fused is None else fused.in_any_layer()
                row = first.setdefault((layer.shape, n, conv, alike), row)
            if row not in rows:
                rows[row] = replace(
                    layer,
                    name=row,
                    tokens=(n,),
                    convolution=conv,
                    fused=fused,
                    runs=0.0,
                    in_pass=place,
                    stands_for=(),
                )
                if workload.form == "standard":
                    rows[row] = _drawn(rows[row], drawn, held)
            rows[row] = replace(
                rows[row],
                runs=rows[row].runs + workload.runs(place, name),
                stands_for=(*rows[row].stands_for, name),
            )
    return rows


def _drawn(
    row: WorkloadLayer,
    drawn: dict[tuple[int, int], Callable[[], npt.NDArray[Any]]],
    held: OneAtATime | None,
) -> WorkloadLayer:
    """Return the row with fp16 weights that all rows of its shape share.

    Parameters
    ----------
    drawn : shape (M, K) -> function that returns the weights; a new shape is added
    held : cache of only the last matrix; None to cache all matrices
    """
    if row.size > MOST_DRAWN:
        raise BadInput(
            f"{row.name}: random weights have at most {MOST_DRAWN} elements, got "
            f"{row.shape[0]}x{row.shape[1]}"
        )
    if row.shape not in drawn:
        draw = partial(heavy_tailed, row.shape, (0, len(drawn)), np.float16)
        drawn[row.shape] = cache(draw) if held is None else partial(held.read, f"{row.shape}", draw)
    conv = row.convolution
    filters = FilterShape(conv.channels, conv.kernel_h, conv.kernel_w) if conv else None
    return replace(row, load=drawn[row.shape], filters=filters)

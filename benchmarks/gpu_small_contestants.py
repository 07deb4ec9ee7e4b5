"""What `gpu_small` times of a case: all forms that are right, the best of them, and the tile kernel."""

from typing import Any, NamedTuple

import cupy as cp
import numpy as np

from benchmarks.gpu_cases import Case
from benchmarks.gpu_small_cases import padded, timed_plan
from benchmarks.gpu_small_check import Reference, excess_of
from benchmarks.gpu_small_layer import Image, operators_of, sets_to_rotate
from benchmarks.gpu_time import Contestant, replay_seconds
from benchmarks.on_gpu.rotation import Rotation, launcher
from prunecast.kernels.cuda.operator import compile
from prunecast.kernels.small_n.configs import SmallConfig
from prunecast.patterns import TileMap

__all__ = [
    "Arrays",
    "Candidate",
    "Weights",
    "candidates",
    "case_of",
    "finalists",
    "mark",
    "tile_cases",
    "tile_kernel",
]

LAUNCHES = 200
LOOKS = 4
"""At every form, the first of which warms up."""
FINALISTS = 2


class Weights(NamedTuple):
    """One density of a layer on the device."""

    tiles: dict[int, TileMap]
    """By height of blocks."""
    images: dict[int, Image]
    exact: Any
    """(M, K) float64, zero where nothing is kept."""
    kept: int


class Candidate(NamedTuple):
    """A form that was right."""

    record: dict[str, Any]
    contestant: Contestant
    operators: list[Any]


class Arrays(NamedTuple):
    """B and C in rotation."""

    bs: list[Any]
    cs: list[Any]


def case_of(case: dict[str, Any]) -> Case:
    """As it was prepared."""
    return Case(case["m"], case["k"], case["n"], case["density"])


def tile_cases(cases: list[dict[str, Any]]) -> list[Case]:
    """As the tile kernel is given them."""
    return [case_of(case)._replace(n=padded(case["n"])) for case in cases]


def mark(case: dict[str, Any]) -> str:
    """Before the names of a case's contestants; dense ones have none."""
    return f"{case['density']:g}|"


def candidates(
    case: dict[str, Any], weights: Weights, arrays: Arrays, reference: Reference, stream: Any
) -> list[Candidate]:
    """All forms that are right, with the time of a brief look."""
    found = []
    for given in case["forms"]:
        form = SmallConfig(*given["form"])
        image = weights.images[form.block_m]
        operators = operators_of(timed_plan(weights.tiles[form.block_m], case["n"], form), image)
        arrays.cs[0].fill(cp.nan)
        operators[0](arrays.bs[0], out=arrays.cs[0])
        worst = float(excess_of(arrays.cs[0], reference, "fp16").max())
        if not worst <= 1.0:
            print(f"  WRONG {case_of(case).name} {given['name']}: excess {worst:.3g}", flush=True)
            continue
        record = {**given, "excess": worst, "bytes": _bytes(case, image)}
        name = f"{mark(case)}small {given['name']}"
        found.append(Candidate(record, _rotating(name, operators, arrays, stream), operators))
    _look(found, stream)
    return found


def _bytes(case: dict[str, Any], image: Image) -> int:
    """That must come from memory: weights, their columns, B; and C."""
    weights, columns = image.sets[0]
    return int(weights.nbytes + columns.nbytes + 2 * case["n"] * (case["m"] + case["k"]))


def _look(candidates: list[Candidate], stream: Any) -> None:
    """Add `screen_us`, the median of a few graphs without rests, to every record."""
    looks: list[list[float]] = [[] for _ in candidates]
    for _ in range(LOOKS):
        for i, candidate in enumerate(candidates):
            one = candidate.contestant
            looks[i].append(replay_seconds(stream, one, 1) / one.launches * 1e6)
    for candidate, us in zip(candidates, looks, strict=True):
        candidate.record["screen_us"] = float(np.median(us[1:]))


def finalists(
    case: dict[str, Any], candidates: list[Candidate], arrays: Arrays, stream: Any
) -> list[Contestant]:
    """The fastest, the planner's first, and the fastest without overlapping launches."""
    if not candidates:
        return []
    ordered = sorted(candidates, key=lambda c: c.record["screen_us"])
    chosen = ordered[:FINALISTS]
    first = [c for c in candidates if c.record["name"] == case["forms"][0]["name"] and c not in chosen]
    best = ordered[0]
    alone = f"{mark(case)}no-pdl {best.record['name']}"
    plain = _rotating(alone, best.operators, arrays, stream, overlap=False)
    return [*(c.contestant for c in [*chosen, *first]), plain]


def tile_kernel(
    case: dict[str, Any],
    plans: dict[str, Any],
    bits: Any,
    arrays: Arrays,
    reference: Reference,
    stream: Any,
) -> list[Contestant]:
    """The tile kernel on the same B, with tokens of zeros where it takes no fewer."""
    (given,) = tile_cases([case])
    operator = compile(plans[given.name], cp.asnumpy(bits.view(cp.float16)))
    images = operator._images
    count = sets_to_rotate(images.weights.nbytes + images.columns.nbytes)
    operators = [operator, *(operator.copy() for _ in range(count - 1))]
    own = _padded_arrays(arrays, case["n"], count)
    operator(own.bs[0], out=own.cs[0])
    worst = float(excess_of(own.cs[0][:, : case["n"]], reference, "fp16").max())
    if not worst <= 1.0:
        print(f"  WRONG tile kernel {given.name}: excess {worst:.3g}", flush=True)
        return []
    return [_rotating(f"{mark(case)}tile", operators, own, stream)]


def _padded_arrays(arrays: Arrays, n: int, count: int) -> Arrays:
    """B and C of whole groups of tokens in `count` sets."""
    found = Arrays([], [])
    for i in range(count):
        b, c = arrays.bs[i % len(arrays.bs)], arrays.cs[0]
        wide = cp.zeros((b.shape[0], padded(n)), b.dtype)
        wide[:, :n] = b
        found.bs.append(wide)
        found.cs.append(cp.full((c.shape[0], padded(n)), cp.nan, c.dtype))
    return found


def _rotating(
    name: str, operators: list[Any], arrays: Arrays, stream: Any, *, overlap: bool = True
) -> Contestant:
    """A graph of whole rounds through all operators, each with a B and a C of its own."""
    count = len(operators)
    launches = count * max(round(LAUNCHES / count), 1)
    run = launcher(Rotation(operators, arrays.bs, arrays.cs), overlap=overlap)
    for i in range(count):
        run(i)
    stream.begin_capture()
    for i in range(launches):
        run(i % count)
    graph = stream.end_capture()
    return Contestant(name, lambda: graph.launch(stream), launches, operators[0].clock, run)

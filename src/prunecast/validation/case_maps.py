"""Create the pruned map of a case reproducibly, and plan a kernel for it.

Maps of tiles and of single elements are drawn at random, with the distribution of the case. For all other
patterns, a random matrix is pruned.
"""

import hashlib

import numpy as np
import numpy.typing as npt

from prunecast.choice import PrunedMap, fastest_plan, product_of
from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec
from prunecast.kernels import KERNELS, KernelPlan, plan_dense
from prunecast.patterns import ElementMap, TileMap, element_map_from_mask, parse_pattern
from prunecast.patterns.element_map import NestedMap
from prunecast.patterns.plain import DENSE_TILE_HEIGHT
from prunecast.patterns.tile_map import MaskArray
from prunecast.patterns.tiling import RowTiles, dense_tile_map, nested_map
from prunecast.validation.case import Case, parse_distribution
from prunecast.validation.records import Measurement
from prunecast.workload.pruned_maps import sparsity_for


def recorded_fingerprint(plan: KernelPlan) -> str:
    """Return the first 16 hex digits of the SHA-256 of the launch that a plan describes.

    Shape, map, work list, schedule and resources are hashed. Warp programs are not: they model the compiled
    code, and a better model does not change the launch that was measured. `KernelPlan.fingerprint` hashes the
    warp programs too.
    """
    schedule = plan.schedule
    text = f"{plan.kernel} {plan.n} {plan.dtype} {plan.tensor} {schedule} {plan.blocks} {plan.shape}"
    text += f" {plan.cluster}" if plan.cluster > 1 else ""
    text += f" {plan.source}" if plan.source is not None else ""
    digest = hashlib.sha256(f"{text} {plan.resources} {plan.tiles.fingerprint()}".encode())
    if plan.inner is not None:
        digest.update(plan.inner.fingerprint().encode())
    for column in plan.work:
        digest.update(column.tobytes())
    return digest.hexdigest()[:16]


class NoSuchKernel(BadInput):
    """Raised for a kernel that this version does not have."""


def case_plan(case: Case, kernel: str, kept: PrunedMap, gpu: GpuSpec) -> KernelPlan:
    """Return the plan of `kernel` for the map of a case; `kept` is the result of `map_of`.

    Raises
    ------
    NoSuchKernel : this version does not have the kernel
    BadInput : the kernel does not support the pattern, number format or GPU
    PlanDoesNotFit : no block fits on an SM
    """
    if kernel not in KERNELS:
        raise NoSuchKernel(f"{case.name}: kernel {kernel!r} cannot be planned; known: {', '.join(KERNELS)}")
    if KERNELS[kernel].is_baseline:
        return plan_dense(case.m, case.k, case.n, case.dtype, gpu, tokens_lie_together=True)
    check_pattern(case, kernel)
    return fastest_plan(kernel, kept, n=case.n, dtype=case.dtype, gpu=gpu)


def check_pattern(case: Case, kernel: str) -> None:
    """Raise BadInput if the case keeps all weights and the kernel runs only pruned ones."""
    if case.pattern == "dense" and not KERNELS[kernel].runs(case.pattern, "tiles"):
        raise BadInput(f"{case.name}: kernel {kernel} needs a pattern, got dense")


def measured_plan(row: Measurement, kept: PrunedMap, gpu: GpuSpec) -> KernelPlan:
    """Return the plan of a recorded row, with the config and the split along K that were measured.

    If this version of prunecast does not have the config, return the plan of `case_plan`.

    Raises
    ------
    BadInput : in the same cases as `case_plan`
    """
    case, kernel = row.case, row.kernel
    if row.plan and kernel in KERNELS:
        product = product_of(kernel, kept, case.n, case.dtype, gpu)
        for config in product.configs():
            if str(config) == row.config:
                plans = product.plans(config)
                return next((plan for plan in plans if recorded_fingerprint(plan) == row.plan), plans[0])
    return case_plan(case, kernel, kept, gpu)


Counts = npt.NDArray[np.int64]
TILE_FAMILIES = ("tile-wise", "vector-wise", "shuffled-block", "block", "dense-block")
SHUFFLED = ("shuffled-block", "dense-block")


def map_of(case: Case) -> PrunedMap:
    """Return the map of the weights that the case keeps: for `dense`, of all weights.

    Raises
    ------
    BadInput : the pattern is unknown or cannot have the sparsity or the distribution
    """
    pattern = parse_pattern(case.pattern)
    if pattern.family == "dense":
        return dense_tile_map(case.m, case.k, DENSE_TILE_HEIGHT)
    rng = np.random.default_rng([case.m, case.k, round(1000 * case.sparsity), case.seed])
    sizes = pattern.parameters
    if pattern.family == "tvw":
        return _nested(case, sizes["height"], rng)
    if pattern.family in TILE_FAMILIES:
        height = sizes.get("height") or -(-case.m // sizes["clusters"])
        return _tiles(case, height, sizes.get("width", 1), rng)
    if pattern.family == "unstructured":
        return _elements(case, rng)
    if case.distribution != "equal":
        raise BadInput(f"{case.name}: distribution {case.distribution} needs tiles, got {case.pattern}")
    importance = {"w": rng.random((case.m, case.k), dtype=np.float32) + np.float32(1e-3)}
    return pattern.map(pattern.prune(importance, sparsity_for(pattern, case.sparsity, natural=True))["w"])


def kept_counts(case: Case, tiles: int, most: int, density: float, rng: np.random.Generator) -> Counts:
    """Return the number of kept columns (or blocks of columns) of each tile, shape (tiles,).

    Each number is at most `most`. All distributions except `random` have the same total as `equal`.
    """
    family, spread = parse_distribution(case.distribution, case.name)
    equal = max(round(most * density), 0)
    if family == "random":
        return np.asarray(rng.binomial(most, density, tiles), np.int64)
    if family == "equal" or tiles == 1:
        return np.full(tiles, equal, np.int64)
    weight = np.ones(tiles)
    if family == "lognormal":
        weight = rng.lognormal(0.0, spread, tiles)
    elif family == "ramp":
        weight = np.arange(1, tiles + 1, dtype=np.float64)
    elif family == "one-full":
        weight = np.full(tiles, max((equal * tiles - most) / (tiles - 1), 1e-9))
        weight[0] = most
    return _scaled(weight, equal * tiles, most)


def _scaled(weight: npt.NDArray[np.float64], total: int, most: int) -> Counts:
    """Return integers that are proportional to `weight`, at most `most` each, and add up to `total`."""
    low, high = 0.0, (total + 1) / float(weight.min())
    for _ in range(200):
        middle = (low + high) / 2
        enough = np.minimum(np.floor(weight * middle), most).sum() >= total
        low, high = (low, middle) if enough else (middle, high)
    counts = np.minimum(np.floor(weight * high), most).astype(np.int64)
    surplus = int(counts.sum()) - total
    partial = np.flatnonzero((counts < most) & (counts > 0))
    heaviest = partial[np.argsort(-counts[partial], kind="stable")]
    counts[heaviest[: max(surplus, 0)]] -= 1
    return counts


def _tiles(case: Case, height: int, width: int, rng: np.random.Generator) -> TileMap:
    """Return a map of tiles of `height` rows that keep random blocks of `width` columns."""
    pattern = parse_pattern(case.pattern)
    tiles, blocks = RowTiles.of(np.arange(case.m), height), -(-case.k // width)
    counts = kept_counts(case, tiles.starts.size, blocks, 1.0 - case.sparsity, rng)
    kept = np.array([_drawn(count, blocks, rng) for count in counts]).repeat(width, axis=1)[:, : case.k]
    if pattern.family in SHUFFLED:
        tiles = tiles._replace(rows=rng.permutation(case.m))
    return tiles.tile_map(kept, case.m, pattern.canonical)


def _drawn(count: int, of: int, rng: np.random.Generator) -> MaskArray:
    """Return a (of,) bool mask with `count` random elements set."""
    flags = np.zeros(of, np.bool_)
    flags[rng.permutation(of)[:count]] = True
    return flags


def _elements(case: Case, rng: np.random.Generator) -> ElementMap:
    """Return a map of single elements; the distribution treats each row as a tile."""
    counts = kept_counts(case, case.m, case.k, 1.0 - case.sparsity, rng)
    chosen = rng.random((case.m, case.k), dtype=np.float32) < (counts / case.k)[:, None]
    return element_map_from_mask(chosen, "unstructured")


def _nested(case: Case, height: int, rng: np.random.Generator) -> NestedMap:
    """Return a map of tiles that keep random groups of four columns, 2 of 4 weights in each row."""
    if case.sparsity < 0.5:
        raise BadInput(f"{case.name}: {case.pattern} keeps 2 of 4 at most, got sparsity {case.sparsity}")
    tiles, groups = RowTiles.of(np.arange(case.m), height), case.k // 4
    counts = kept_counts(case, tiles.starts.size, groups, 2.0 * (1.0 - case.sparsity), rng)
    columns = np.zeros((tiles.starts.size, case.k), np.bool_)
    mask = np.zeros((case.m, case.k), np.bool_)
    for tile, (rows, count) in enumerate(zip(tiles.members, counts, strict=True)):
        columns[tile, : 4 * groups] = _drawn(count, groups, rng).repeat(4)
        mask[np.ix_(rows, np.flatnonzero(columns[tile]))] = _two_of_four(rows.size, 4 * int(count), rng)
    return nested_map(mask, columns, height=height, pattern=parse_pattern(case.pattern).canonical)


def _two_of_four(rows: int, columns: int, rng: np.random.Generator) -> MaskArray:
    """Return a (rows, columns) bool mask with two random elements in each group of four columns of a row."""
    choices = np.array([[1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 0, 1], [0, 1, 1, 0], [0, 1, 0, 1], [0, 0, 1, 1]])
    drawn = choices[rng.integers(0, 6, (rows, columns // 4))]
    return np.asarray(drawn.reshape(rows, columns), np.bool_)

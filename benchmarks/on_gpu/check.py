"""Is the tile kernel right? Every element against float64 on the GPU, within its bound, tile by tile.

Inputs are drawn afresh for each check, outputs are poisoned with NaN, and rows of B that no tile keeps are
infinite, so that a padded column that is read shows.
"""

from typing import Any, NamedTuple

import cupy as cp
import numpy as np

from prunecast.kernels import KernelPlan
from prunecast.validation.measure.contestants import FLOATS, exact, nothing, rounded
from prunecast.validation.tolerance import error_bound

TILE = 128


class Verdict(NamedTuple):
    """Result of one check."""

    name: str
    excess: float
    """Largest |error| over its bound; at most 1 is right, infinite where C is not finite."""
    wrong_tiles: int
    repeats: bool
    """Whether all repeated runs gave the same bits."""
    detail: str = ""
    """Where a wrong result is wrong."""

    @property
    def passes(self) -> bool:
        """Right, and the same in every run."""
        return self.excess <= 1.0 and self.repeats


class Inputs(NamedTuple):
    """Weights on the host, as the packer takes them, and B on the device."""

    a: np.ndarray
    b: Any


def random_inputs(plan: KernelPlan, seed: int) -> Inputs:
    """Normal values; rows of B that no tile keeps are infinite."""
    a = np.random.default_rng(seed).standard_normal((plan.m, plan.k), dtype=np.float32)
    b = cp.random.RandomState(seed).standard_normal((plan.k, plan.n), dtype=cp.float32)
    unread = np.setdiff1d(np.arange(plan.k), plan.tiles.column_index)
    if unread.size:
        b[cp.asarray(unread)] = cp.inf
    return Inputs(a, rounded(b, plan.dtype))


def check(name: str, operator: Any, inputs: Inputs, *, runs: int = 1) -> Verdict:
    """Compare C with float64; `runs` launches must agree bit by bit."""
    plan = operator.plan
    c = poisoned(plan)
    operator(inputs.b, out=c)
    repeats = True
    for _ in range(runs - 1):
        again = poisoned(plan)
        operator(inputs.b, out=again)
        repeats &= bool((again.view(cp.uint16) == c.view(cp.uint16)).all())
    excess = _excess(plan, inputs, exact(c, plan.dtype))
    detail = "" if float(excess.max()) <= 1.0 else _detail(plan, excess, c)
    return Verdict(name, float(excess.max()), _wrong_tiles(excess), repeats, detail)


def poisoned(plan: KernelPlan) -> Any:
    """C (M, N) of NaN, so that what a kernel leaves out shows."""
    return cp.full((plan.m, plan.n), nothing(plan.dtype), FLOATS.get(plan.dtype, cp.uint16))


def _detail(plan: KernelPlan, excess: Any, c: Any) -> str:
    """Wrong elements, how many of them are not finite, and which tiles they hit."""
    wrong = (excess > 1.0).get()
    tiles = plan.tiles
    hit = []
    for t in range(tiles.tile_count):
        own = wrong[tiles.row_index[tiles.row_start[t] : tiles.row_start[t + 1]]]
        if own.any():
            tokens = np.flatnonzero(own.any(axis=0))
            places = np.flatnonzero(own.any(axis=1))
            kept = int(tiles.kept_per_tile[t])
            where = f"rows {places[0]}-{places[-1]} of {len(own)}, tokens {tokens[0]}-{tokens[-1]}"
            hit.append(f"tile {t} kept {kept}: {own.sum()} of {own.size}, {where}")
    alone = np.setdiff1d(np.arange(plan.m), tiles.row_index)
    not_finite = int((~cp.isfinite(exact(c, plan.dtype))).sum())
    return f"{wrong.sum()} wrong, {not_finite} not finite, {wrong[alone].sum()} in no tile; " + "; ".join(
        hit[:6]
    )


def _excess(plan: KernelPlan, inputs: Inputs, c: Any) -> Any:
    """|error| over bound of every element, (M, N)."""
    a = exact(rounded(cp.asarray(inputs.a), plan.dtype), plan.dtype)
    a *= cp.asarray((plan.inner or plan.tiles).mask())
    b = exact(inputs.b, plan.dtype)
    b[~cp.isfinite(b)] = 0.0
    reference = a @ b
    cp.abs(a, out=a)
    cp.abs(b, out=b)
    kept = max(int(plan.tiles.kept_per_tile.max(initial=1)), 1)
    bound = error_bound(reference, a @ b, kept, plan.dtype)
    excess = cp.abs(c - reference) / bound
    excess[~cp.isfinite(c)] = cp.inf
    return excess


def _wrong_tiles(excess: Any) -> int:
    rows, columns = (-(-size // TILE) for size in excess.shape)
    padded = cp.zeros((rows * TILE, columns * TILE))
    padded[: excess.shape[0], : excess.shape[1]] = excess
    worst = padded.reshape(rows, TILE, columns, TILE).max(axis=(1, 3))
    return int((worst > 1.0).sum())

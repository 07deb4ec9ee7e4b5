"""Is the kernel for few tokens right? Every element against float64 on the GPU, 20 runs bit by bit.

C is poisoned with NaN and written inside a larger buffer whose edges must keep their poison; rows of B that
no tile keeps are infinite, and so is what lies between its rows.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import cupy as cp
import numpy as np

from benchmarks.gpu_check import GELU_SLOPE, Verdict
from benchmarks.gpu_small_cases import ENDINGS, SmallCheck, ending_plan, plan_of_check, ragged_map
from benchmarks.gpu_small_layer import Image, image_of, operators_of
from benchmarks.on_gpu.formats import activated, in_float64, rounded
from prunecast.kernels import KernelPlan
from prunecast.kernels.compile import compile
from prunecast.kernels.cuda.small.pack import pack_small
from prunecast.kernels.small_n.configs import row_unit
from prunecast.patterns import TileMap
from prunecast.validation.tolerance import error_bound

__all__ = ["Reference", "check_endings", "check_small", "excess_of", "reference_of"]

RUNS = 20
POISON = {"fp16": 0x7E00, "bf16": 0x7FC0}
"""A quiet NaN."""


class Reference(NamedTuple):
    """What C must be, (M, N) float64."""

    c: Any
    bound: Any


class Ragged(NamedTuple):
    """A ragged map with weights, on the device."""

    tiles: TileMap
    bits: Any
    """(M, K) uint16."""
    exact: Any
    """(M, K) float64, zero where nothing is kept."""
    image: Image


def reference_of(exact: Any, b: Any, dtype: str, kept: int) -> Reference:
    """Of weights in float64 and B as the kernel takes it; infinite rows of B are not read."""
    given = in_float64(b, dtype)
    given[~cp.isfinite(given)] = 0.0
    wanted = exact @ given
    return Reference(wanted, error_bound(wanted, cp.abs(exact) @ cp.abs(given), max(kept, 1), dtype))


def excess_of(c: Any, reference: Reference, dtype: str) -> Any:
    """|error| over bound of every element; infinite where C is not finite."""
    given = in_float64(c, dtype)
    excess = cp.abs(given - reference.c) / reference.bound
    excess[~cp.isfinite(given)] = cp.inf
    return excess


def check_small(checks: Iterable[SmallCheck]) -> list[Verdict]:
    """All forms of `checks` on the ragged maps of their heights."""
    verdicts, maps = [], {}
    for check in checks:
        key = (check.form.block_m, check.dtype)
        if key not in maps:
            maps[key] = _ragged(*key)
            verdicts.append(_check_packed(*key, maps[key]))
        verdicts.append(_check(check, maps[key]))
    return verdicts


def _ragged(height: int, dtype: str) -> Ragged:
    tiles = ragged_map(height)
    random = cp.random.RandomState(height)
    stored = rounded(random.standard_normal((tiles.m, tiles.k), dtype=cp.float32), dtype)
    bits = stored.view(cp.uint16)
    exact = in_float64(stored, dtype) * cp.asarray(tiles.mask())
    return Ragged(tiles, bits, exact, image_of(tiles, bits, height, count=1))


def _check_packed(height: int, dtype: str, ragged: Ragged) -> Verdict:
    """What timed plans read is what `pack_small` makes."""
    wanted, found = pack_small(ragged.tiles, ragged.bits.get(), height), ragged.image.packed
    pairs = (
        (wanted.weights, found.weights.get()),
        (wanted.columns, found.columns.get()),
        (wanted.rows, found.rows),
        (wanted.group_start, found.group_start),
    )
    same = all(np.array_equal(one, other) for one, other in pairs)
    return Verdict(f"packed for {height} rows, {dtype}", 0.0 if same else np.inf, 0, True)


def _check(check: SmallCheck, ragged: Ragged) -> Verdict:
    plan = plan_of_check(check, ragged.tiles)
    (operator,) = operators_of(plan, ragged.image)
    b = _b_of(plan)
    buffer, c = _poisoned(plan)
    operator(b, out=c)
    reference = reference_of(ragged.exact, b, check.dtype, int(plan.tiles.kept_per_tile.max()))
    excess = excess_of(c, reference, check.dtype)
    same = _repeats(operator, b, buffer, plan)
    worst, inside = float(excess.max()), _edges_kept(buffer, plan)
    detail = "" if worst <= 1.0 else _where(excess, plan)
    return Verdict(
        check.name, worst if inside else np.inf, 0, same, detail if inside else f"outside of C; {detail}"
    )


def _b_of(plan: KernelPlan) -> Any:
    """(K, N) in rows that are further apart; infinite between them, and in rows that no tile keeps."""
    apart = row_unit(plan.n) // 2
    b = cp.random.RandomState(plan.n).standard_normal((plan.k, plan.n + apart), dtype=cp.float32)
    b[:, plan.n :] = cp.inf
    unread = np.setdiff1d(np.arange(plan.k), plan.tiles.column_index)
    b[cp.asarray(unread)] = cp.inf
    return rounded(b, plan.dtype)[:, : plan.n]


def _poisoned(plan: KernelPlan) -> tuple[Any, Any]:
    """A buffer of uint16 with a row and a unit to spare on all sides but the left, and C inside it."""
    apart = row_unit(plan.n) // 2
    buffer = cp.full((plan.m + 2, plan.n + apart), POISON[plan.dtype], cp.uint16)
    c = buffer[1:-1, : plan.n]
    return buffer, c if plan.dtype == "bf16" else buffer.view(cp.float16)[1:-1, : plan.n]


def _repeats(operator: Any, b: Any, buffer: Any, plan: KernelPlan) -> bool:
    """Whether further runs give the very bytes of `buffer`; also into rows without anything between."""
    differs = cp.zeros((), cp.bool_)
    for _ in range(RUNS - 2):
        again, c = _poisoned(plan)
        operator(b, out=c)
        differs |= (again != buffer).any()
    close = operator(cp.ascontiguousarray(b))
    differs |= (close.view(cp.uint16) != buffer[1:-1, : plan.n]).any()
    return not bool(differs)


def _edges_kept(buffer: Any, plan: KernelPlan) -> bool:
    poison = POISON[plan.dtype]
    edges = (buffer[0], buffer[-1], buffer[:, plan.n :])
    return all(bool((edge == poison).all()) for edge in edges)


def _where(excess: Any, plan: KernelPlan) -> str:
    """Wrong elements, and the first tiles that have some."""
    wrong = (excess > 1.0).get()
    tiles, hit = plan.tiles, []
    for t in range(tiles.tile_count):
        own = wrong[tiles.row_index[tiles.row_start[t] : tiles.row_start[t + 1]]]
        if own.any():
            rows, tokens = np.flatnonzero(own.any(axis=1)), np.flatnonzero(own.any(axis=0))
            where = f"rows {rows[0]}-{rows[-1]}, tokens {tokens[0]}-{tokens[-1]}"
            hit.append(f"kept {int(tiles.kept_per_tile[t])}: {own.sum()} of {own.size}, {where}")
    alone = np.setdiff1d(np.arange(plan.m), tiles.row_index)
    return f"{wrong.sum()} wrong, {wrong[alone].sum()} in no tile; {len(hit)} tiles: " + "; ".join(hit[:5])


def check_endings() -> list[Verdict]:
    """Bias and activation, through `compile` as users call it."""
    return [_check_ending(n, activation) for n in (7, 16) for activation in ENDINGS]


def _check_ending(n: int, activation: str) -> Verdict:
    plan = ending_plan(n)
    rng = np.random.default_rng(n)
    a = rng.standard_normal((plan.m, plan.k), dtype=np.float32)
    bias = rng.standard_normal(plan.m).astype(np.float32)
    operator = compile(plan, a, bias=bias, activation=activation)
    b = _b_of(plan)
    _, c = _poisoned(plan)
    operator(b, out=c)
    exact = in_float64(rounded(cp.asarray(a), "fp16"), "fp16") * cp.asarray(plan.tiles.mask())
    given = in_float64(b, "fp16")
    given[~cp.isfinite(given)] = 0.0
    added = cp.asarray(bias, cp.float64)[:, None]
    before = exact @ given + added
    absolute = cp.abs(exact) @ cp.abs(given) + cp.abs(added)
    kept = int(plan.tiles.kept_per_tile.max()) + 1
    bound = GELU_SLOPE * error_bound(before, absolute, kept, "fp16") + 1e-6
    excess = excess_of(c, Reference(activated(before, activation), bound), "fp16")
    worst = float(excess.max())
    name = f"bias {activation} fp16 N={n}"
    return Verdict(name, worst, 0, True, "" if worst <= 1.0 else _where(excess, plan))

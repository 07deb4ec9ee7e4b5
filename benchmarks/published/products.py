"""Dense, 2:4 and CSR products of the published tables, and the bounds that are drawn from their fit rows.

One hash of the sizes says which half of a table may be fitted to, as in a suite; all densities of a shape lie
on one side. How a table was taken (`Table`) says which state, launches and cache are predicted. Of several
forms or layouts the fastest counts. Pairs of 2048^3 and more also say how often the sign of "2:4 pays" is
right, and bounds how many fit rows those of all other shapes hold.
"""

import datetime
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.goals import Goal, print_goal
from benchmarks.published.tables import TABLES, Product, Table, rows_of
from prunecast.choice import fastest_plan
from prunecast.hardware import GpuSpec, load_gpu
from prunecast.kernels import DTYPE_BYTES, KernelPlan, plan_dense
from prunecast.launch import CacheState
from prunecast.models import estimate
from prunecast.patterns import ElementMap, element_map_from_columns
from prunecast.validation.case import Case, use_by_rule
from prunecast.validation.case_maps import case_plan, map_of
from prunecast.validation.judged import summarise_errors
from prunecast.workload.engines import simulate

ENGINES: dict[str, Callable[..., float]] = {
    "model": lambda plan, gpu, **taken: estimate(plan, gpu, **taken).seconds,
    "simulator": lambda plan, gpu, **taken: simulate(plan, gpu, **taken).seconds,
}
SETS_OF_WEIGHTS = 6.0
"""Layers in turn in the graphs of AIConfigurator."""
HEIGHT = 128
"""Rows of a tile in which a V:N:M kernel keeps the same columns."""
MOST_SIMULATED_S = 2e-3
"""Longer products are left to the closed form: they take the simulator seconds."""


BURST_S = 5e-3
"""A series that is over by then is a burst: the power limit has not yet brought the clock down. Kind: fitted,
fit rows of the H100 PCIe."""
FEWEST_ROWS, TAIL = 10, 0.05
"""Rows from which bounds are drawn, and what lies beyond each of them."""
RIGHT_SIGNS = 93.0
"""Percent of pairs of which it should be known whether 2:4 pays."""


def fastest(products: Iterable[Product]) -> list[Product]:
    """Each product once, as fast as any form or layout of it."""
    best: dict[tuple[float, ...], Product] = {}
    for product in products:
        known = best.setdefault(product.size, product)
        if product.seconds < known.seconds:
            best[product.size] = product
    return list(best.values())


def use_of(product: Product) -> str:
    """`fit` or `judge`."""
    return use_by_rule(product.m, product.k, product.n, f"2 of {product.keeps}" if product.keeps else "dense")


def plan_of(product: Product, dtype: str, gpu: GpuSpec) -> KernelPlan:
    """Dense, CSR, the library's 2:4, or 2:4 in columns that tiles of 128 rows keep."""
    m, k, n = product[:3]
    if product.kernel == "csr":
        return fastest_plan("csr", even_rows(m, k, round(product.density * k)), n, dtype, gpu)
    if product.kernel != "dense":
        return fastest_plan(product.kernel, two_of_four(m, k), n, dtype, gpu, state="sustained")
    if not product.keeps:
        return plan_dense(m, k, n, dtype, gpu)
    case = Case(
        name="published", m=m, k=k, n=n, dtype=dtype, pattern=f"tvw:{HEIGHT}", kernels=("2:4",), use="judge",
        sparsity=1.0 - 2.0 / product.keeps,
    )  # fmt: skip
    return case_plan(case, "2:4", map_of(case), gpu)


def two_of_four(m: int, k: int) -> ElementMap:
    """The first two of every four: which ones stay does not change the time."""
    return _same_rows(m, k, np.arange(k, dtype=np.int32).reshape(-1, 4)[:, :2].ravel(), "2:4")


def even_rows(m: int, k: int, kept: int) -> ElementMap:
    """So many elements of every row, at even distances."""
    return _same_rows(m, k, (np.arange(kept) * k // max(kept, 1)).astype(np.int32), "unstructured")


def _same_rows(m: int, k: int, columns: npt.NDArray[np.int32], pattern: str) -> ElementMap:
    start = np.arange(m + 1, dtype=np.int32) * np.int32(columns.size)
    return element_map_from_columns(start, np.tile(columns, m), k, pattern)


class Found(NamedTuple):
    """Products of one use, and what is predicted of them."""

    products: list[Product]
    seconds: list[float]

    @property
    def ratios(self) -> list[float]:
        """Measured over predicted times."""
        return [product.seconds / seconds for product, seconds in zip(*self, strict=True)]


def predicted(table: Table, products: list[Product], use: str, engine: str) -> Found:
    """Predictions of the products of one use."""
    gpu = load_gpu(table.gpu)
    most_s = MOST_SIMULATED_S if engine == "simulator" else float("inf")
    own = [product for product in products if use_of(product) == use and product.seconds <= most_s]
    return Found(own, [_seconds(table, product, gpu, ENGINES[engine]) for product in own])


def _seconds(table: Table, product: Product, gpu: GpuSpec, engine: Callable[..., float]) -> float:
    """In the state that the table is of, or in a burst where its series ends before that comes."""
    plan = plan_of(product, table.dtype, gpu)
    l2 = CacheState(table.l2, SETS_OF_WEIGHTS * product.m * product.k * DTYPE_BYTES[table.dtype])
    seconds = engine(plan, gpu, state=table.state, launch=table.launch, l2=l2)
    if 0.0 < table.series * seconds < BURST_S:
        return engine(plan, gpu, state="burst", launch=table.launch, l2=l2)
    return seconds


def print_products(tables: Sequence[Table], folder: Path, every: int, engines: Iterable[str]) -> str:
    """Print each table's errors beside the goal, of rows that were fitted to and of the others.

    Returns the CSV of bounds that 90 % of fit rows keep.
    """
    bounded: Bounded = {}
    pairs_of: dict[tuple[str, str, str], list[Found]] = {}
    for table in tables:
        products = fastest(table.products(rows_of(folder, table.file)))[::every]
        for engine in engines:
            for use in ("fit", "judge"):
                rows = predicted(table, products, use, engine)
                print_errors(table, engine, use, rows)
                if table.bounds:
                    bounded.setdefault((table.gpu, kernel_of(rows), table.state), {}).setdefault(
                        use, []
                    ).append(rows)
                if table.series:
                    pairs_of.setdefault((table.gpu, engine, use), []).append(rows)
    for (gpu, engine, use), (dense, sparse) in pairs_of.items():
        print_signs(f"{gpu}, {engine}, {use}", dense, sparse)
    return bands(bounded, tables)


Bounded = dict[tuple[str, str, str], dict[str, list[Found]]]
"""Rows by GPU, kernel and state of the table, and by use."""


def print_signs(what: str, dense: Found, sparse: Found) -> None:
    """How often it is right which of the two is faster."""
    times = {p.size: (p.seconds, s) for p, s in zip(*dense, strict=True)}
    right = [
        (product.seconds < times[product.size][0]) == (seconds < times[product.size][1])
        for product, seconds in zip(*sparse, strict=True)
        if product.size in times
    ]
    if right:
        name = f"{what}, {len(right)} pairs: sign of 2:4 pays"
        print_goal(Goal(name=name, limit=RIGHT_SIGNS, unit="%", at_least=True), 100 * float(np.mean(right)))


def kernel_of(rows: Found) -> str:
    """The kernel that a table is of; nothing without rows."""
    names = {"2:4" if product.keeps else product.kernel for product in rows.products}
    return names.pop() if names else ""


def bands(found: Bounded, tables: Sequence[Table]) -> str:
    """CSV: for each GPU, kernel and state what `codesign.interval` takes where nothing was measured here."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    files = {table.gpu: table.file for table in (*reversed(tables), *reversed(TABLES))}
    lines = ["gpu,kernel,state,low,high,fit_cases,cross_validated,judge_cases,coverage,date,source"]
    for (gpu, kernel, state), of_use in found.items():
        fit, judge = (_ratios(of_use.get(use, [])) for use in ("fit", "judge"))
        if min(fit.size, judge.size) < FEWEST_ROWS:
            continue
        low, high = bounds(fit)
        held = held_by_other_shapes(fit, [p[:2] for rows in of_use["fit"] for p in rows.products])
        inside = _inside(judge, low, high)
        others = f"those of the other shapes hold {100 * held:.0f} % of {fit.size} fit rows"
        all_rows = f"all hold {100 * inside:.0f} % of {judge.size} judge rows"
        print(f"{gpu} {kernel}, {state}: bounds {low:.3f} to {high:.3f}; {others}, {all_rows}")
        numbers = f"{low:.3f},{high:.3f},{fit.size},{held:.3f},{judge.size},{inside:.3f}"
        lines.append(f"{gpu},{kernel},{state},{numbers},{today},{files[gpu]}")
    return "\n".join(lines) + "\n"


Ratios = npt.NDArray[np.float64]


def _ratios(rows: list[Found]) -> Ratios:
    return np.array([ratio for part in rows for ratio in part.ratios])


def _inside(ratios: Ratios, low: float, high: float) -> float:
    return float(((ratios >= low) & (ratios <= high)).mean())


def bounds(ratios: Ratios) -> tuple[float, float]:
    """What a new row lies between in 90 % of cases."""
    return 1.0 / bound(1.0 / ratios), bound(ratios)


def held_by_other_shapes(ratios: Ratios, shapes: list[tuple[int, ...]]) -> float:
    """Share of the rows that lie within bounds drawn from rows of other (M, K) alone."""
    number = np.unique(np.array(shapes), axis=0, return_inverse=True)[1].ravel()
    held = 0.0
    for own in (number == one for one in range(number.max() + 1)):
        held += own.sum() * _inside(ratios[own], *bounds(ratios[~own]))
    return float(held / ratios.size)


def bound(ratios: Ratios) -> float:
    """What a new row exceeds in a `TAIL` of cases: conformal rank, between two rows in proportion.

    Of so few rows that there is no such rank above the largest.
    """
    ordered = np.sort(ratios)
    rank = (ratios.size + 1) * (1.0 - TAIL)
    if rank > ratios.size:
        return float(ordered[-1]) * (1.0 + 1.0 / ratios.size)
    return float(np.exp(np.interp(rank, np.arange(1, ratios.size + 1), np.log(ordered))))


def print_errors(table: Table, engine: str, use: str, rows: Found) -> None:
    """MAPE beside its goal, and the rest on a line of its own."""
    if not rows.products:
        return
    measured = [product.seconds for product in rows.products]
    found = summarise_errors(rows.seconds, measured, [str(product) for product in rows.products])
    name = f"{table.name}, {engine}, {found.cases} {use} rows: MAPE"
    print_goal(Goal(name=name, limit=table.most_percent, unit="%"), 100 * found.mape)
    print(
        f"{'p90, bias, worst':>40} {100 * found.p90:.1f} {100 * found.bias:+.1f} {100 * found.worst:+.0f} %"
    )

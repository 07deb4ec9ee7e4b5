"""Predictions beside kernel times that others published, of GPUs that nobody here owns.

python -m benchmarks.published FOLDER [--every 6] [--engines model simulator]

FOLDER holds dense bf16 tables of A100 SXM, H100 SXM, B200 and L40S (AIConfigurator, Apache-2.0), dense fp16
tables of V100 and T4 (DeepBench, Apache-2.0), V:N:M kernels of RTX 3090 (VENOM, Apache-2.0), and dense beside
2:4 by the vendor's libraries on A100 PCIe, H100 PCIe, B200 and RTX 4090 (vllmbench, Apache-2.0); they are no
part of this project. One hash of the sizes says which half of a table may be fitted to, as in a suite. How a
table was taken (`Table`) says which state, launches and cache are predicted. Of several forms or layouts the
fastest counts. Pairs of 2048^3 and more also say how often the sign of "2:4 pays" is right.
"""

import argparse
import csv
import datetime
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.goals import Goal, print_goal
from prunecast.choice import fastest_plan
from prunecast.hardware import GpuSpec, load_gpu
from prunecast.kernels import DTYPE_BYTES, KernelPlan, plan_dense
from prunecast.launch import CacheState
from prunecast.models import estimate
from prunecast.patterns import ElementMap
from prunecast.simulator import simulate
from prunecast.validation.case import Case, use_by_rule
from prunecast.validation.case_maps import case_plan, map_of
from prunecast.validation.judged import summarise_errors

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


class Product(NamedTuple):
    """One product and how long it took."""

    m: int
    k: int
    n: int
    keeps: int
    """2 of so many columns; 0 for dense."""
    seconds: float
    kernel: str = "dense"


class Table(NamedTuple):
    """A published table."""

    name: str
    file: str
    gpu: str
    dtype: str
    products: Callable[[Iterable[dict[str, str]]], Iterator[Product]]
    most_percent: float
    """MAPE that is wanted of rows that were not fitted to."""
    state: str = "burst"
    launch: str = "graph"
    l2: str = "cold"
    """As `CacheState.name`; in `model` six sets of weights rotate, as in AIConfigurator's graphs."""
    series: int = 0
    """Launches back to back, behind which the GPU rests; 0 where it never does."""


def torch_linear(rows: Iterable[dict[str, str]]) -> Iterator[Product]:
    """Torch: y (m, n) = x (m, k) W (n, k)^T: its rows are tokens here."""
    for row in rows:
        yield Product(int(row["n"]), int(row["k"]), int(row["m"]), 0, float(row["seconds"]))


def deep_bench(rows: Iterable[dict[str, str]]) -> Iterator[Product]:
    """Rows of A and columns of B as we have them."""
    for row in rows:
        yield Product(int(row["m"]), int(row["k"]), int(row["n"]), 0, float(row["seconds"]))


def venom(algorithm: str, column: str) -> Callable[[Iterable[dict[str, str]]], Iterator[Product]]:
    """Rows of one algorithm, by one of the columns of times, which are in milliseconds."""

    def products(rows: Iterable[dict[str, str]]) -> Iterator[Product]:
        for row in rows:
            if row["algo"] == algorithm:
                keeps = int(row["mm_col"]) if column == "spmm_time" else 0
                yield Product(int(row["m"]), int(row["k"]), int(row["n"]), keeps, 1e-3 * float(row[column]))

    return products


def pairs(gpu: str, kernel: str) -> Callable[[Iterable[dict[str, str]]], Iterator[Product]]:
    """bf16 products of one GPU: dense, or 2:4 by the vendor's library."""
    column = "dense_seconds" if kernel == "dense" else "two_of_four_seconds"

    def products(rows: Iterable[dict[str, str]]) -> Iterator[Product]:
        for row in rows:
            if (row["gpu"], row["dtype"]) == (gpu, "bf16") and row[column]:
                size = (int(row["m"]), int(row["k"]), int(row["n"]))
                if size[0] > MOST_ROWS:
                    continue
                if kernel == "dense" or size[0] * size[1] * size[2] >= LARGE:
                    yield Product(*size, 0, float(row[column]), kernel)

    return products


def paired(gpu: str, spec: str, wanted: float) -> tuple[Table, Table]:
    """The two tables of the pairs of a GPU: launches back to back, on the same operands."""
    back_to_back: dict[str, Any] = {"state": "sustained", "launch": "stream", "l2": "warm"}
    back_to_back["series"] = WARM_UPS + REPEATS
    file, name = "two_of_four_pairs.csv", gpu if "PCIe" in gpu else f"{gpu} pairs,"
    own = gpu.split()[0]
    return (
        Table(f"{name} dense", file, spec, "bf16", pairs(own, "dense"), wanted, **back_to_back),
        Table(f"{name} 2:4, large", file, spec, "bf16", pairs(own, "cusparselt"), 10.0, **back_to_back),
    )


WARM_UPS, REPEATS = 25, 50
"""As vllmbench has it."""
BURST_S = 5e-3
"""A series that is over by then is a burst: the power limit has not yet brought the clock down. Kind: fitted,
fit rows of the H100 PCIe."""
MOST_ROWS = 60_000
"""A product whose map of 2:4 fits in memory."""
FEWEST_ROWS, TAIL = 10, 0.05
"""Rows from which bounds are drawn, and what lies beyond each of them."""
LARGE = 2048**3
"""M x K x N from which errors of 2:4 are counted: smaller ones are launches above all."""
TABLES = (
    Table("A100 dense", "gemm_bf16_a100_sxm.csv", "a100-sxm4-80gb", "bf16", torch_linear, 9.0),
    Table("H100 dense", "gemm_bf16_h100_sxm.csv", "h100-sxm", "bf16", torch_linear, 9.0),
    Table("V100 dense", "gemm_fp16_v100.csv", "v100-sxm2-16gb", "fp16", deep_bench, 12.0),
    Table("B200 dense", "gemm_bf16_b200.csv", "b200", "bf16", torch_linear, 10.0, "sustained", l2="model"),
    Table("L40S dense", "gemm_bf16_l40s.csv", "l40s", "bf16", torch_linear, 13.0, "sustained", l2="model"),
    Table("T4 dense", "gemm_fp16_t4.csv", "t4", "fp16", deep_bench, 9.0, "sustained", "stream", "warm"),
    *paired("A100 PCIe", "a100-pcie-40gb", 8.0),
    *paired("H100 PCIe", "h100-pcie", 9.0),
    *paired("B200", "b200", 10.0),
    *paired("RTX4090", "rtx-4090", 9.0),
    Table("RTX 3090 dense", "venom_rtx3090_*.csv", "rtx-3090", "fp16", venom("2", "gemm_time"), 10.0),
    Table("RTX 3090 V:N:M", "venom_rtx3090_*.csv", "rtx-3090", "fp16", venom("2", "spmm_time"), 10.0),
    Table("RTX 3090 V:N:M, other", "venom_rtx3090_*.csv", "rtx-3090", "fp16", venom("7", "spmm_time"), 10.0),
)


def fastest(products: Iterable[Product]) -> list[Product]:
    """Each product once, as fast as any form or layout of it."""
    best: dict[tuple[int, int, int, int], Product] = {}
    for product in products:
        known = best.setdefault(product[:4], product)
        if product.seconds < known.seconds:
            best[product[:4]] = product
    return list(best.values())


def use_of(product: Product) -> str:
    """`fit` or `judge`."""
    return use_by_rule(product.m, product.k, product.n, f"2 of {product.keeps}" if product.keeps else "dense")


def plan_of(product: Product, dtype: str, gpu: GpuSpec) -> KernelPlan:
    """Dense, or 2:4 in columns that tiles of 128 rows keep."""
    m, k, n = product[:3]
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
    columns = np.arange(k, dtype=np.int32).reshape(-1, 4)[:, :2].ravel()
    return ElementMap(
        m=m,
        k=k,
        row_start=np.arange(m + 1, dtype=np.int32) * np.int32(columns.size),
        column_index=np.tile(columns, m),
        pattern="2:4",
    )


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


def rows_of(folder: Path, pattern: str) -> Iterator[dict[str, str]]:
    """Rows of all files that match."""
    for path in sorted(folder.glob(pattern)):
        with path.open() as file:
            yield from csv.DictReader(file)


def main() -> None:
    """Print each table's errors, those of rows that were not fitted to beside the goal."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--every", type=int, default=1, help="of that many rows take the first")
    parser.add_argument("--engines", nargs="*", default=["model"], choices=tuple(ENGINES))
    parser.add_argument(
        "--intervals", type=Path, help="write bounds that 90 %% of fit rows keep to this file"
    )
    arguments = parser.parse_args()
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    for table in TABLES:
        products = fastest(table.products(rows_of(arguments.folder, table.file)))[:: arguments.every]
        for engine in arguments.engines:
            for use in ("fit", "judge"):
                rows = predicted(table, products, use, engine)
                print_errors(table, engine, use, rows)
                of_kernel = found.setdefault((table.gpu, kernel_of(rows)), {})
                of_kernel.setdefault(use, []).extend(rows.ratios)
    if arguments.intervals:
        arguments.intervals.write_text(bands(found), encoding="utf-8")


def kernel_of(rows: Found) -> str:
    """The kernel that a table is of; nothing without rows."""
    names = {"2:4" if product.keeps else product.kernel for product in rows.products}
    return names.pop() if names else ""


def bands(found: dict[tuple[str, str], dict[str, list[float]]]) -> str:
    """CSV: for each GPU and kernel what `codesign.interval` takes where nothing was measured here."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    files = {table.gpu: table.file for table in reversed(TABLES)}
    lines = ["gpu,kernel,low,high,fit_cases,judge_cases,coverage,date,source"]
    for (gpu, kernel), ratios in found.items():
        fit, judge = (np.array(ratios.get(use, [])) for use in ("fit", "judge"))
        if min(fit.size, judge.size) < FEWEST_ROWS:
            continue
        low, high = (1.0 / bound(1.0 / fit), bound(fit))
        of_fit, inside = (float(((rows >= low) & (rows <= high)).mean()) for rows in (fit, judge))
        held = f"{100 * of_fit:.0f} % of {fit.size} fit rows, {100 * inside:.0f} % of {judge.size} judge rows"
        print(f"{gpu} {kernel}: bounds {low:.3f} to {high:.3f} hold {held}")
        lines.append(
            f"{gpu},{kernel},{low:.3f},{high:.3f},{fit.size},{judge.size},{inside:.3f},{today},{files[gpu]}"
        )
    return "\n".join(lines) + "\n"


def bound(ratios: npt.NDArray[np.float64]) -> float:
    """What a new row exceeds in a `TAIL` of cases (conformal rank); of few rows above the largest."""
    rank = int(np.ceil((ratios.size + 1) * (1.0 - TAIL)))
    if rank <= ratios.size:
        return float(np.sort(ratios)[rank - 1])
    return float(ratios.max()) * (1.0 + 1.0 / ratios.size)


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


if __name__ == "__main__":
    main()

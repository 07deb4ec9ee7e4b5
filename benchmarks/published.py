"""Predictions beside kernel times that others published, of GPUs that nobody here owns.

python -m benchmarks.published FOLDER [--every 6] [--engines model simulator]

FOLDER holds dense bf16 tables of A100 SXM and H100 SXM (AIConfigurator, Apache-2.0), the dense fp16 table of
V100 (DeepBench, Apache-2.0) and V:N:M kernels of RTX 3090 (VENOM, Apache-2.0); they are no part of this
project. One hash of the sizes says which half of a table may be fitted to, as in a suite. Launches are taken
to come from a graph, clocks to be those of bursts. Of several forms or layouts the fastest counts.
"""

import argparse
import csv
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.goals import Goal, print_goal
from prunecast.hardware import GpuSpec, load_gpu
from prunecast.kernels import KernelPlan, plan_dense
from prunecast.models import estimate
from prunecast.simulator import simulate
from prunecast.validation.case import Case, use_by_rule
from prunecast.validation.case_maps import map_of
from prunecast.validation.case_plans import case_plan
from prunecast.validation.errors import ErrorSummary, summarise_errors

ENGINES: dict[str, Callable[..., float]] = {
    "model": lambda plan, gpu: estimate(plan, gpu).seconds,
    "simulator": lambda plan, gpu: simulate(plan, gpu).seconds,
}
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


class Table(NamedTuple):
    """A published table."""

    name: str
    file: str
    gpu: str
    dtype: str
    products: Callable[[Iterable[dict[str, str]]], Iterator[Product]]
    most_percent: float
    """MAPE that is wanted of rows that were not fitted to."""


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


TABLES = (
    Table("A100 dense", "gemm_bf16_a100_sxm.csv", "a100-sxm4-80gb", "bf16", torch_linear, 9.0),
    Table("H100 dense", "gemm_bf16_h100_sxm.csv", "h100-sxm", "bf16", torch_linear, 9.0),
    Table("V100 dense", "gemm_fp16_v100.csv", "v100-sxm2-16gb", "fp16", deep_bench, 12.0),
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
    if not product.keeps:
        return plan_dense(m, k, n, dtype, gpu)
    case = Case(
        name="published", m=m, k=k, n=n, dtype=dtype, pattern=f"tvw:{HEIGHT}", kernels=("2:4",), use="judge",
        sparsity=1.0 - 2.0 / product.keeps,
    )  # fmt: skip
    return case_plan(case, "2:4", map_of(case), gpu)


def errors(table: Table, products: list[Product], use: str, engine: str) -> ErrorSummary | None:
    """Of the products of one use; None without any."""
    gpu = load_gpu(table.gpu)
    most_s = MOST_SIMULATED_S if engine == "simulator" else float("inf")
    own = [product for product in products if use_of(product) == use and product.seconds <= most_s]
    if not own:
        return None
    predicted = [ENGINES[engine](plan_of(product, table.dtype, gpu), gpu) for product in own]
    return summarise_errors(predicted, [product.seconds for product in own], [str(p) for p in own])


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
    arguments = parser.parse_args()
    for table in TABLES:
        products = fastest(table.products(rows_of(arguments.folder, table.file)))[:: arguments.every]
        for engine in arguments.engines:
            for use in ("fit", "judge"):
                print_errors(table, engine, use, errors(table, products, use, engine))


def print_errors(table: Table, engine: str, use: str, found: ErrorSummary | None) -> None:
    """MAPE beside its goal, and the rest on a line of its own."""
    if found is None:
        return
    name = f"{table.name}, {engine}, {found.cases} {use} rows: MAPE"
    print_goal(Goal(name=name, limit=table.most_percent, unit="%"), 100 * found.mape)
    print(
        f"{'p90, bias, worst':>40} {100 * found.p90:.1f} {100 * found.bias:+.1f} {100 * found.worst:+.0f} %"
    )


if __name__ == "__main__":
    main()

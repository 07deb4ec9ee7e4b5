"""Kernel times that others published: what each table holds and how it was taken."""

import csv
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from prunecast.errors import BadInput
from prunecast.hardware import gpu_names, load_gpu

WARM_UPS, REPEATS = 25, 50
"""As vllmbench has it."""
MOST_ROWS = 60_000
"""A product whose map of 2:4 fits in memory."""
LARGE = 2048**3
"""M x K x N from which errors of 2:4 are counted: smaller ones are launches above all."""


class Product(NamedTuple):
    """One product and how long it took."""

    m: int
    k: int
    n: int
    keeps: int
    """2 of so many columns; 0 for dense."""
    seconds: float
    kernel: str = "dense"
    density: float = 1.0
    """Share of elements that CSR keeps."""

    @property
    def size(self) -> tuple[float, ...]:
        """What is multiplied, whatever multiplies it."""
        return (*self[:4], self.density)


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
    bounds: bool = True
    """Whether intervals of the kernel are drawn from it; one token says nothing of many."""


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


def one_token(kernel: str) -> Callable[[Iterable[dict[str, str]]], Iterator[Product]]:
    """One token, dense once a shape, or by CSR at every density."""
    column = {"dense": "cublas", "csr": "cusparse-csr"}[kernel]

    def products(rows: Iterable[dict[str, str]]) -> Iterator[Product]:
        for row in rows:
            if row["kernel"] == column:
                density = float(row["density"]) if kernel == "csr" else 1.0
                yield Product(int(row["m"]), int(row["k"]), 1, 0, float(row["seconds"]), kernel, density)

    return products


def one_token_table(kernel: str, wanted: float) -> Table:
    """Cache flushed before each launch."""
    return Table(f"RTX 3090 one token, {kernel}", "one_token_rtx_3090.csv", "rtx-3090", "fp16",
                 one_token(kernel), wanted, launch="stream", bounds=False)  # fmt: skip


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
    one_token_table("dense", 10.0),
    one_token_table("csr", 20.0),
)


def rows_of(folder: Path, pattern: str) -> Iterator[dict[str, str]]:
    """Rows of all files that match."""
    for path in sorted(folder.glob(pattern)):
        with path.open() as file:
            yield from csv.DictReader(file)


SAME_CHIPS = {"h800": "h100-sxm", "h800-sxm": "h100-sxm"}
"""GPUs without a spec -> the spec of the same chip. The H800 has less NVLink and fp64 than the H100."""


def gpu_of_file(name: str) -> str:
    """Return the spec that a file name ends with: `gemm_bf16_b300.csv` is `b300`, `..._h100.csv` `h100-sxm`.
    Names of our own records begin with it.

    Of several specs that begin with these words it is the one for SXM sockets, and then the one with most
    memory.

    Raises
    ------
    BadInput : no spec has such a name
    """
    own = [gpu for gpu in gpu_names() if name.startswith(f"{gpu}-")]
    if own:
        return max(own, key=len)
    words = name.removesuffix(".csv").replace("_", "-").lower().split("-")
    for first in range(1, len(words)):
        wanted = "-".join(words[first:])
        found = [gpu for gpu in gpu_names() if gpu == wanted or gpu.startswith(f"{wanted}-")]
        if wanted in SAME_CHIPS:
            return SAME_CHIPS[wanted]
        if found:
            return wanted if wanted in found else max(found, key=_preference)
    raise BadInput(f"{name}: wanted a file name that ends with the name of a GPU, see `prunecast gpus`")


def _preference(gpu: str) -> tuple[bool, int]:
    return "-sxm" in gpu, load_gpu(gpu).dram_bytes


def dense_tables(folder: Path) -> list[Table]:
    """Return tables of further dense products, `gemm_bf16_GPU.csv`, as AIConfigurator publishes them."""
    known = {table.file for table in TABLES}
    paths = [path for path in sorted(folder.glob("gemm_bf16_*.csv")) if path.name not in known]
    return [_dense_table(path.name) for path in paths]


def _dense_table(file: str) -> Table:
    gpu = gpu_of_file(file)
    return Table(f"{gpu} dense", file, gpu, "bf16", torch_linear, 8.0, "sustained", l2="model")

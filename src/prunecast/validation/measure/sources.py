"""What measuring knows without a GPU: CUDA sources, how they are compiled, how large shared buffers are."""

from pathlib import Path

from prunecast.plan.kernel_plan import DTYPE_BYTES
from prunecast.validation.case import Case

POOL_ELEMENTS = 400_000_000
"""Random numbers in the pool: B is read from one half, dense A from the other."""
OUTPUT_BYTES = 800_000_000


def pool_elements(case: Case) -> int:
    """Elements of a pool whose halves hold A and B."""
    return max(POOL_ELEMENTS, 2 * max(case.m * case.k, case.k * case.n))


def output_bytes(case: Case) -> int:
    """Bytes of a buffer that holds C."""
    return max(OUTPUT_BYTES, case.m * case.n * DTYPE_BYTES[case.dtype])


MICROBENCHMARKS = Path(__file__).parents[1] / "microbenchmarks"
DEPTHS = (1, 2, 4, 8, 16)
"""Loads of 16 bytes that a thread has on their way."""
ROW_BYTES = (32, 64, 128, 256, 512, 1024, 4096, 16384)
"""Bytes of a copied row."""
WIDTHS = (64, 128, 192, 256)
"""Tokens of a wgmma instruction."""


def microbenchmark_builds() -> list[tuple[str, dict[str, int]]]:
    """Source and defines of every build, for a GPU machine that has no compiler."""
    plain = ("latency.cu", "waiting.cu", "clock_probe.cu", "reuse.cu")
    found: list[tuple[str, dict[str, int]]] = [(source, {}) for source in plain]
    found += [("bandwidth.cu", {"DEPTH": depth}) for depth in DEPTHS]
    found += [("copies.cu", {"ROW_BYTES": width}) for width in ROW_BYTES]
    found += [("tensor.cu", {"SPARSE": s, "CHAINS": c}) for s in (0, 1) for c in (1, 8)]
    return found + [("wgmma.cu", {"WIDTH": width}) for width in WIDTHS]

"""Where the CUDA sources of the measuring tools lie, and how they are compiled."""

from pathlib import Path

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

"""Where the CUDA sources of the measuring tools lie."""

from pathlib import Path

__all__ = ["MICROBENCHMARKS"]

MICROBENCHMARKS = Path(__file__).parents[1] / "microbenchmarks"

"""Products of which `gpu_forms` times several forms: some chosen where forms come close, some drawn."""

from collections.abc import Iterator

import numpy as np

from benchmarks.gpu_cases import Case

__all__ = ["CASES", "draws"]

CASES = (
    Case(128, 256, 25088, 0.5),
    Case(64, 256, 25088, 0.5, rows=64),
    Case(64, 576, 25088, 0.25, rows=64),
    Case(512, 256, 6272, 0.5),
    Case(768, 768, 4096, 0.1),
    Case(768, 768, 4096, 0.25),
    Case(1280, 1280, 3072, 0.05),
    Case(1280, 1280, 1024, 0.15),
    Case(3072, 768, 512, 0.25),
    Case(4096, 1024, 512, 0.1),
    Case(2048, 512, 392, 0.5),
    Case(2304, 768, 4096, 0.25),
    Case(768, 768, 4096, 656 / 768),
    Case(5120, 1280, 3072, 0.3),
    Case(14336, 4096, 1536, 0.2),
)

ROWS_OF_LAYERS = (
    128,
    256,
    384,
    512,
    768,
    896,
    1024,
    1280,
    1536,
    2048,
    2560,
    3072,
    3584,
    4096,
    4864,
    5120,
    6144,
)
COLUMNS = (256, 384, 512, 768, 896, 1024, 1280, 1536, 2048, 2560, 3072, 4096)
TOKENS = (
    *(96, 128, 192, 256, 320, 384, 448, 512, 640, 768, 896, 1024, 1280, 1536, 1792, 2048),
    *(2560, 3072, 3136, 4096, 5120, 6272, 8192, 12544),
)
DENSITIES = (0.04, 0.08, 0.12, 0.16, 0.2, 0.25, 0.3, 0.4, 0.5, 0.65)
HEIGHTS = (64, 128, 128, 128, 256)
SPREADS = ("equal", "equal", "equal", "lognormal", "ramp")
MOST_FMA = 1.2e10
"""A product of 40 us or so."""
MOST_BYTES = 6e7
"""Of B and C, so that inputs in turn fit in the time that is lent."""
SEED = 20261122


def draws() -> Iterator[Case]:
    """An endless draw: layers of 2 to 40 us in all that the planner may meet."""
    rng = np.random.default_rng(SEED)
    while True:
        m, k, n = (int(rng.choice(of)) for of in (ROWS_OF_LAYERS, COLUMNS, TOKENS))
        density, kept, rows = float(rng.choice(DENSITIES)), str(rng.choice(SPREADS)), int(rng.choice(HEIGHTS))
        small = m * k * n * density <= MOST_FMA and 2 * n * (m + k) <= MOST_BYTES
        if small and m > rows:
            yield Case(m, k, n, density, kept, rows=rows)

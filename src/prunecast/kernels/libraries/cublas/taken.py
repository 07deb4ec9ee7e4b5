"""Which tile the vendor's library for sm_90 takes where tokens are a multiple of 64 and K is not cut.

It has a kernel for every multiple of 8, and takes few of them: of 7,995 such products drawn at random and
named (cuBLAS 13.1, H200, 2026-11-22; 512 rows and more) these 31 tiles are 90 % of all choices, and 95 %
where rows are a multiple of 64 themselves. Nor does it take the one that is fastest by the arithmetic of
`times`: what explains most names is what the busiest SM has to do and what it has to read, one after the
other, as if no cluster shared a read, and that it believes in large clusters.
"""

from functools import lru_cache

from prunecast.hardware.occupancy import occupancy
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.libraries.cublas.forms import EVEN_TOKENS, warpgroup_form
from prunecast.kernels.tile.config import TileConfig

__all__ = ["PAIRS_BELIEVED", "SMALL_SIDE", "TAKEN_TILES", "taken_forms"]

_ROWS_BESIDE = {
    64: (8, 16, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 256),
    128: (80, 96, 128, 160, 192, 256),
    192: (96, 192),
    256: (160,),
}
_TOKENS_BESIDE = {64: (32, 96, 128), 128: (96, 112, 176, 192, 256, 320)}
TAKEN_TILES = sorted(
    {(rows, tokens) for tokens, sides in _ROWS_BESIDE.items() for rows in sides}
    | {(rows, tokens) for rows, sides in _TOKENS_BESIDE.items() for tokens in sides}
)
"""Rows and tokens."""
SMALL_SIDE = 64
"""No smaller tile than 64 x 64 is taken where those are more than half of the SMs: of 375 such names of 1,024
columns and more 27 have one."""
PAIRS_BELIEVED = 1.05
"""How much longer the library takes what has too many tiles for large clusters. Fitted to 1,388 named
products of 512 columns and more, of which 47 % were in the very tile and 62 % are; in truth it takes no
longer."""
LEAST_COLUMNS = 512


def taken_forms(gpu: GpuSpec, dtype: str, k: int, tokens: int) -> tuple[TileConfig, ...]:
    """Forms of these tiles; none for few columns, where tokens are no multiple of 64 or a GPU is no sm_90."""
    if tokens % EVEN_TOKENS or k < LEAST_COLUMNS or not gpu.has_wgmma:
        return ()
    return _fitting(gpu, dtype)


@lru_cache(maxsize=8)
def _fitting(gpu: GpuSpec, dtype: str) -> tuple[TileConfig, ...]:
    forms = (warpgroup_form(gpu, dtype, rows, tokens) for rows, tokens in TAKEN_TILES)
    return tuple(form for form in forms if form and occupancy(form.resources, gpu).blocks_per_sm > 0)

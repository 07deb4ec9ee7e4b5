"""Launch of the attention kernel for encoders with a padding mask of keys, on device addresses.

For 32 sequences of 128 tokens with 12 heads and a mask tensor, cuDNN's attention needs 18.5 us and this
kernel 11.4 us (own measurement, H200, 2026-11-28), because cuDNN reads a bias for every pair of tokens.
"""

import math
from typing import NamedTuple

import numpy as np

from prunecast.kernels.device.pass_launch import PassLaunch, record

WIDTHS = (64, 128)
"""Features of a head that the kernel supports. Kind: CUDA source, `attend.cu`."""
QUERIES, SLOTS, THREADS, MOST_KEYS = 64, 3, 128, 2048
"""Queries of a thread block, pipeline stages of keys and values in shared memory, threads of a thread block,
and maximum keys of a sequence. Kind: CUDA source, `attend.cu`."""
SHORT_KEYS, SHORT_BLOCK, LONG_BLOCK = 256, 32, 64
"""Keys per pipeline stage: `SHORT_BLOCK` for sequences of up to `SHORT_KEYS` keys, `LONG_BLOCK` for longer
ones.

Kind: choice, from two compiled variants. With 32 and 64 keys per stage, 32 sequences of 128 keys need 10.3
and 11.3 us, 16 sequences of 256 keys 20.5 and 19.4 us, 16 of 512 keys 43.9 and 41.8 us, and 4 of 1024 keys
61.4 and 47.2 us (H200, heads of 64 features, the first case in passes of BERT-base, 2026-11-28). The variant
with 64 keys had two stages then; with three stages it has not yet run on a GPU."""
LEAST_CAPABILITY = 80
"""Minimum compute capability, times ten, with the instructions of the kernel. Kind: definition, PTX ISA."""
_ALIGN_BYTES, _ELEMENT_BYTES = 16, 2
"""Alignment of rows, and bytes of an element. Kind: CUDA source, `attend.cu`."""
_HEAD_ROWS = [
    ("from", "u8"),
    ("sequence_bytes", "i8"),
    ("head_bytes", "i8"),
    ("row_bytes", "i4"),
    ("unused", "i4"),
]
ATTENTION_ARGS = np.dtype(
    [
        *((name, _HEAD_ROWS) for name in ("queries_of", "keys_of", "values_of")),
        *((name, "u8") for name in ("out", "mask")),
        *((name, "i8") for name in ("mask_row_bytes", "out_row_bytes")),
        *((name, "i4") for name in ("heads", "heads_per_key_head", "queries", "keys", "query_blocks")),
        ("scale", "f4"),
    ]
)
"""Layout of `AttentionArgs` in `attend.cu`."""


class HeadRows(NamedTuple):
    """Address and strides in bytes of queries, keys or values.

    The features of one token and head are contiguous; `row_bytes` is the stride from token to token.
    """

    pointer: int
    sequence_bytes: int
    head_bytes: int
    row_bytes: int

    @property
    def aligned(self) -> bool:
        """True if all rows begin at multiples of 16 bytes, and the row stride is below 2 GiB."""
        return not any(each % _ALIGN_BYTES for each in self) and self.row_bytes < 1 << 31


class AttentionForm(NamedTuple):
    """Compile-time parameters of one variant of the kernel."""

    width: int
    """Features of a head."""
    is_bf16: bool
    is_masked: bool
    """True if there is a mask; without a mask, all keys are attended to."""
    columns: bool
    """True if the result is (heads, width, tokens), False if it is (tokens, heads, width)."""
    block: int = SHORT_BLOCK
    """Keys that are processed per pipeline stage."""

    @property
    def defines(self) -> dict[str, int]:
        """Preprocessor macros that compile this variant."""
        own = {"WIDTH": self.width, "MASKED": int(self.is_masked), "COLUMNS": int(self.columns)}
        own |= {"KEYS": self.block, "HOST_SHARED_BYTES": self.shared_bytes}
        return own | ({"BF16": 1} if self.is_bf16 else {})

    @property
    def shared_bytes(self) -> int:
        """Bytes of dynamic shared memory of a block: queries, stages of keys and values, bits of the mask."""
        rows = QUERIES + SLOTS * 2 * self.block
        return rows * self.width * _ELEMENT_BYTES + MOST_KEYS // 8


class AttentionSizes(NamedTuple):
    """Sizes of one call of attention."""

    sequences: int
    heads: int
    key_heads: int
    """Heads of keys and values; each belongs to `heads / key_heads` neighbouring heads of queries."""
    queries: int
    keys: int

    @property
    def blocks(self) -> int:
        """Number of thread blocks of the launch."""
        return self.sequences * self.heads * -(-self.queries // QUERIES)


def may_attend(form: AttentionForm, sizes: AttentionSizes, *rows: HeadRows) -> bool:
    """Return True if the kernel supports a call: its head width, sizes, and alignment of rows.

    Parameters
    ----------
    rows : queries, keys and values
    """
    fits = form.width in WIDTHS and 0 < sizes.keys <= MOST_KEYS and sizes.heads % sizes.key_heads == 0
    return fits and all(each.aligned for each in rows) and not (form.columns and sizes.queries % 8)


def attention_launch(form: AttentionForm, sizes: AttentionSizes, scale: float, *rows: HeadRows) -> PassLaunch:
    """Return the launch that computes the attention. The caller must write the addresses of the result
    (`out`) and of the mask (`mask`) into its argument record.

    Parameters
    ----------
    scale : positive factor of the scores, e.g. 1 / sqrt(head width)
    rows : queries, keys and values, in this order
    """
    queries, keys, values = ((*each, 0) for each in rows)
    row = sizes.sequences * sizes.queries if form.columns else sizes.heads * form.width
    args = record(
        ATTENTION_ARGS,
        queries_of=queries,
        keys_of=keys,
        values_of=values,
        mask_row_bytes=sizes.keys,
        out_row_bytes=_ELEMENT_BYTES * row,
        heads=sizes.heads,
        heads_per_key_head=sizes.heads // sizes.key_heads,
        queries=sizes.queries,
        keys=sizes.keys,
        query_blocks=-(-sizes.queries // QUERIES),
        scale=scale * math.log2(math.e),
    )
    defines = tuple(form.defines.items())
    return PassLaunch(
        "attention/attend.cu", "attend", args, sizes.blocks, THREADS, form.shared_bytes, defines
    )

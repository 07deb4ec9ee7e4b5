"""Launch of the transposing copy kernel on device addresses, independent of the framework of the arrays.

torch's own copy of a transposed view needs 23 us for 4096 x 768 fp16 on an H200, which is 0.5 TB/s (own
measurement, 2026-11-22) and longer than the matrix product that follows.
"""

from typing import NamedTuple

import numpy as np

from prunecast.kernels.device.launch import argument_record
from prunecast.kernels.device.pass_launch import PassLaunch, record

ALIGN_BYTES, ELEMENT_BYTES = 16, 2
"""Alignment of rows in bytes, and bytes of an element. Kind: CUDA source, `transpose_rows.cu`."""
EDGE, THREADS, SHARED_BYTES = 64, 256, 64 * 33 * 4
"""Rows and columns of the tile that a block transposes, threads of a block, and bytes of its shared memory.
Kind: CUDA source, `transpose_rows.cu`."""

TRANSPOSE_ARGS = argument_record("x b", "x_row_bytes b_row_bytes", "tokens padded features blocks_across")
"""Layout of `TransposeArgs`."""


GATHER_ARGS = np.dtype([*TRANSPOSE_ARGS.descr, ("source", "u8"), ("columns", "u8")])
"""Layout of `TransposeArgs` for a transpose that gathers tokens."""
NORM_ARGS = np.dtype(
    [*TRANSPOSE_ARGS.descr, ("shift", "u8"), ("scale", "u8"), ("weight", "u8"), ("bias", "u8")]
)
"""Layout of `TransposeArgs` for a transpose with normalisation."""


class Norm(NamedTuple):
    """Normalisation of X while it is transposed: ((X - shift) * scale) * weight + bias.

    The first four fields are device addresses; `shift`, `weight` and `bias` are 0 if they are absent.
    """

    shift: int
    """(tokens,) fp32."""
    scale: int
    """(tokens,) fp32."""
    weight: int
    """(features,) in the format of X."""
    bias: int
    """(features,) in the format of X."""
    rounds: bool
    """True if values are rounded to the format of X before the multiplication with `weight`."""
    is_bf16: bool

    @property
    def changes(self) -> tuple[tuple[str, int], ...]:
        """Preprocessor macros that compile the kernel with this normalisation."""
        parts = {"SHIFT": self.shift, "WEIGHT": self.weight, "BIAS": self.bias, "ROUNDS": self.rounds}
        found = {"NORMED": 1, **{name: int(bool(each)) for name, each in parts.items()}}
        return tuple((found | ({"BF16": 1} if self.is_bf16 else {})).items())


class Gather(NamedTuple):
    """Selection of the tokens of X that become columns of B, as device addresses."""

    source: int
    """(columns,) int32: token of X for each column of B; negative for a column of zeros."""
    columns: int
    """One int32: the number of columns."""

    @property
    def changes(self) -> tuple[tuple[str, int], ...]:
        """Preprocessor macros that compile the kernel with the gather."""
        return (("GATHERED", 1),)


class Rows(NamedTuple):
    """Address, row stride and shape of a row-major matrix of 2-byte elements on a device."""

    pointer: int
    row_bytes: int
    rows: int
    columns: int

    @property
    def aligned(self) -> bool:
        """True if address, row stride and row length are multiples of 16 bytes."""
        words = self.pointer % ALIGN_BYTES == 0 and self.row_bytes % ALIGN_BYTES == 0
        return words and self.columns * ELEMENT_BYTES % ALIGN_BYTES == 0


_LAYOUTS = {type(None): TRANSPOSE_ARGS, Norm: NORM_ARGS, Gather: GATHER_ARGS}


def may_transpose(x: Rows, b: Rows) -> bool:
    """Return True if the kernel can transpose X (tokens, features) to B.

    Both must be aligned, and B must be (features, columns) with at least as many columns as X has tokens.
    """
    return x.aligned and b.aligned and x.columns == b.rows and b.columns >= x.rows


def transpose_launch(x: Rows, b: Rows, change: Norm | Gather | None = None) -> PassLaunch:
    """Return the launch that transposes X.

    Parameters
    ----------
    x, b : X (tokens, features) and B (features, columns)
    change : normalisation of X, or selection of its tokens; None for a plain transpose
    """
    across, down = -(-x.columns // EDGE), -(-b.columns // EDGE)
    names = (_LAYOUTS[type(change)].names or ())[len(TRANSPOSE_ARGS.names or ()) :]
    args = record(
        _LAYOUTS[type(change)],
        x=x.pointer,
        b=b.pointer,
        x_row_bytes=x.row_bytes,
        b_row_bytes=b.row_bytes,
        tokens=x.rows,
        padded=b.columns,
        features=x.columns,
        blocks_across=across,
        **{name: getattr(change, name) for name in names},
    )
    changes = () if change is None else change.changes
    source = "transpose/transpose_rows.cu"
    return PassLaunch(source, "transpose_rows", args, across * down, THREADS, SHARED_BYTES, changes)

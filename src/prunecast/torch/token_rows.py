"""Rows of tokens as kernels read them: how many a plan is made for, and B (features, tokens) in such rows.

A row of B is all tokens of one feature. Kernels multiply whole groups of 8 tokens, and are fastest where rows
begin with a line of L2, which holds 64. What stands behind the tokens of a row is never seen in C.
"""

import torch

from prunecast.hardware.spec import LINE_BYTES
from prunecast.kernels.device.transpose.transpose import Rows, may_transpose, transpose_rows
from prunecast.plan.misaligned import ROW_BYTES, copied_row_bytes

__all__ = [
    "ELEMENT_BYTES",
    "LINE_TOKENS",
    "has_room",
    "in_rows",
    "padded_tokens",
    "planned_tokens",
    "side_by_side",
]

ELEMENT_BYTES = 2
"""fp16 and bf16."""
LINE_TOKENS = LINE_BYTES // ELEMENT_BYTES


def padded_tokens(tokens: int, step: int) -> int:
    """Tokens of a row that holds `tokens`: 8, 16, 32 or 64, then the next multiple of `step`."""
    if tokens <= LINE_TOKENS:
        return copied_row_bytes(tokens, ELEMENT_BYTES) // ELEMENT_BYTES
    return -(-tokens // step) * step


def planned_tokens(b: torch.Tensor, step: int) -> int:
    """Tokens that a plan for B has: just its own where it can be read as it lies, or else `padded_tokens`."""
    tokens = int(b.shape[1])
    padded = padded_tokens(tokens, step)
    if has_room(b, padded):
        return padded
    return tokens if has_room(b, tokens) and tokens * ELEMENT_BYTES % ROW_BYTES == 0 else padded


def in_rows(b: torch.Tensor, tokens: int) -> torch.Tensor:
    """B with rows of so many tokens: B itself where they lie like that, or else a copy with zeros behind."""
    features, own = b.shape
    if has_room(b, tokens):
        return b.as_strided((features, tokens), (b.stride(0), 1))
    copy = b.new_empty((features, tokens))
    if not _transposed(b, copy):
        copy[:, :own] = b
        copy[:, own:] = 0
    return copy


def _transposed(b: torch.Tensor, to: torch.Tensor) -> bool:
    """Whether B (features, tokens), whose features lie side by side, has been turned into rows on its GPU."""
    x, rows = side_by_side(b), Rows(to.data_ptr(), to.stride(0) * ELEMENT_BYTES, *to.shape)
    if b.is_cuda and x is not None and may_transpose(x, rows):
        stream = torch.cuda.current_stream(b.device).cuda_stream
        with torch.cuda.device(b.device):
            transpose_rows(x, rows, device=b.device.index, stream=stream)
        return True
    return False


def side_by_side(b: torch.Tensor) -> Rows | None:
    """X (tokens, features) of B (features, tokens), where the features of a token lie side by side."""
    features, tokens = b.shape
    if b.element_size() != ELEMENT_BYTES or b.stride(0) != 1:
        return None
    row = int(b.stride(1)) if tokens > 1 else features  # no other token says how far apart they are
    return Rows(int(b.data_ptr()), row * ELEMENT_BYTES, tokens, features)


def has_room(b: torch.Tensor, tokens: int) -> bool:
    """Whether rows begin where kernels can begin, so many tokens apart at least, the last one too."""
    row, size_bytes = int(b.stride(0)), int(b.untyped_storage().nbytes())
    ends = int(b.storage_offset()) + (len(b) - 1) * row + tokens
    aligned = row * ELEMENT_BYTES % ROW_BYTES == 0 and int(b.data_ptr()) % ROW_BYTES == 0
    in_order = int(b.stride(1)) == 1 or b.shape[1] == 1
    return aligned and in_order and row >= tokens and ends * ELEMENT_BYTES <= size_bytes

"""Block-sparse products in Triton, tuned by Triton: a peer, not a kernel of this project."""

from collections.abc import Callable
from typing import Any

import cupy as cp
import numpy as np
import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"TOKENS": tokens}, num_warps=warps, num_stages=stages)
    for tokens in (64, 128, 256)
    for warps in (4, 8)
    for stages in (3, 4, 5)
]


@triton.autotune(configs=CONFIGS, key=["n", "rows"])
@triton.jit
def _multiply(blocks, columns, start, b, c, n, rows, BLOCK: tl.constexpr, TOKENS: tl.constexpr):
    """C rows of one row of blocks: blocks (kept, BLOCK, BLOCK), columns of blocks, start of every row."""
    row, part = tl.program_id(0), tl.program_id(1)
    inside = tl.arange(0, BLOCK)
    token = part * TOKENS + tl.arange(0, TOKENS)
    sums = tl.zeros((BLOCK, TOKENS), tl.float32)
    for i in range(tl.load(start + row), tl.load(start + row + 1)):
        column = tl.load(columns + i) * BLOCK
        weights = tl.load(blocks + i * BLOCK * BLOCK + inside[:, None] * BLOCK + inside[None, :])
        tokens = tl.load(
            b + (column + inside)[:, None] * n + token[None, :], mask=token[None, :] < n, other=0.0
        )
        sums = tl.dot(weights, tokens, sums)
    at = c + (row * BLOCK + inside)[:, None] * n + token[None, :]
    tl.store(at, sums.to(c.dtype.element_ty), mask=token[None, :] < n)


def block_sparse(a: Any, bs: list[Any], block: int) -> Callable[[int], Any]:
    """The product of A (M, K), zero outside its blocks, with B number i, as a torch tensor (M, N)."""
    m, k = a.shape
    n = bs[0].shape[1]
    grid_of_blocks = a.reshape(m // block, block, k // block, block).transpose(0, 2, 1, 3)
    kept = cp.asnumpy((grid_of_blocks != 0).any(axis=(2, 3)))
    row, column = np.nonzero(kept)
    blocks = torch.from_dlpack(cp.ascontiguousarray(grid_of_blocks[row, column]))
    start = np.append(0, np.cumsum(kept.sum(axis=1)))
    columns = torch.tensor(column, dtype=torch.int32, device="cuda")
    starts = torch.tensor(start, dtype=torch.int32, device="cuda")
    tensors = [torch.from_dlpack(b) for b in bs]
    outputs = [torch.empty((m, n), dtype=tensors[0].dtype, device="cuda") for _ in bs]

    def run(i: int) -> Any:
        def grid(chosen: dict[str, int]) -> tuple[int, int]:
            return (m // block, triton.cdiv(n, chosen["TOKENS"]))

        _multiply[grid](blocks, columns, starts, tensors[i], outputs[i], n, m // block, BLOCK=block)
        return outputs[i]

    return run

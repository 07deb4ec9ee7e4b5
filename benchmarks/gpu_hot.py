"""How long the same rows of B take to reach many blocks that ask for them at once, and rows of their own.

python -m benchmarks.gpu_hot build FOLDER         without a GPU
python -m benchmarks.gpu_hot run FOLDER OUT.json
"""

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from prunecast.kernels.cuda.build import compile_cubin

SOURCE = Path(__file__).parent / "gpu_hot.cu"
ROUNDS, SHARED_BYTES = 12, 64 * 1024
POOL_BYTES = 1 << 30
ARGS = np.dtype(
    [
        *((name, "u8") for name in ("b", "times", "gate")),
        *((name, "i8") for name in ("row_bytes", "again", "own")),
        *((name, "i4") for name in ("valid", "columns", "ranges", "rounds")),
    ]
)
"""`HotArgs`."""


class Hot(NamedTuple):
    """What blocks copy."""

    row_bytes: int
    blocks: int
    cold: bool
    """From memory that nobody has read."""
    own: bool = False
    """Rows of its own for every block."""

    @property
    def columns(self) -> int:
        """Rows of B that a block copies."""
        return 256 if self.row_bytes > 128 else 512


def cases() -> list[Hot]:
    """Rows of 8 to 256 tokens of two bytes."""
    blocks = (1, 8, 32, 48, 64, 96, 128)
    found = [
        Hot(row, b, cold)
        for row in (16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 192, 208, 256, 512)
        for b in blocks
        for cold in (True, False)
    ]
    return found + [Hot(row, 128, cold, own=True) for row in (32, 128) for cold in (True, False)]


def measure(case: Hot, kernel: Any, pool: Any) -> dict[str, Any]:
    """Cycles of the median and of the last block, of rounds behind the first two."""
    import cupy as cp

    from prunecast.kernels.cuda.launch import launch

    size = case.columns * case.row_bytes
    own = size if case.own else 0
    again = max(size, own * case.blocks) if case.cold else 0
    times, gate = cp.zeros((ROUNDS, case.blocks, 2), cp.uint64), cp.zeros(1, cp.uint32)
    pool[: 1 << 28].fill(1)  # what was read before leaves L2
    args = np.zeros((), ARGS)
    pointers = (pool.data.ptr + (1 << 29), times.data.ptr, gate.data.ptr)
    sizes = (min(case.row_bytes, 128), case.columns, max(case.row_bytes // 128, 1), ROUNDS)
    args[()] = (*pointers, case.row_bytes, again, own, *sizes)
    launch(
        kernel.kernel.ptr,
        [args.ctypes.data],
        blocks=case.blocks,
        threads=512,
        shared_bytes=SHARED_BYTES,
        stream=cp.cuda.Stream.null.ptr,
        overlap=False,
    )
    cp.cuda.Device().synchronize()
    found = times.get()[2:].astype(np.int64)
    return {
        **case._asdict(),
        "asked": int(np.median(found[..., 0])),
        "there": int(np.median(found[..., 1])),
        "there_last": int(np.median(found[..., 1].max(axis=1))),
    }


def main() -> None:
    """Build or run."""
    cubin = compile_cubin(SOURCE, "sm_90", {}, folder=Path(sys.argv[2])).cubin
    if sys.argv[1] == "build":
        print(cubin)
        return
    import cupy as cp

    kernel = cp.RawModule(path=str(cubin)).get_function("hot")
    kernel.max_dynamic_shared_size_bytes = SHARED_BYTES
    pool = cp.zeros(POOL_BYTES, cp.uint8)
    records = [measure(case, kernel, pool) for case in cases()]
    for record in records:
        print(*(f"{name} {value}" for name, value in record.items()))
    Path(sys.argv[3]).write_text(json.dumps(records))


if __name__ == "__main__":
    main()

"""What of an SM blocks of a one-token launch take."""

MOST_REGISTERS = 96
"""Most registers of a thread that the plan allows. Kind: CUDA source, `vector.cu`, launch bounds."""


FEWEST_REGISTERS = 40
"""With which three blocks fit on an SM: fp16, one row a warp, segments of 64. The same in bf16 has 44.
Kind: as-compiled, sm_90."""


def vector_registers(rows: int, segment: int, index_bytes: int, dtype: str) -> int:
    """Registers of a thread of the kernel for one token, as compiled for sm_90."""
    if dtype == "fp32":
        return _FP32[index_bytes][rows - 1]
    if rows > 1:
        return _HALF[index_bytes][rows - 2]
    if index_bytes == 1 and segment == 64 and dtype == "fp16":
        return FEWEST_REGISTERS
    return 48 if index_bytes == 1 else 52


_FP32 = {1: (54, 70, 85, 80), 2: (56, 75, 75, 92)}
"""Registers per thread of fp32 by bytes of an index, for one to four rows a warp.

Kind: as-compiled, sm_90.
"""
_HALF = {1: (56, 79, 64), 2: (64, 64, 72)}
"""Registers per thread for two to four rows, fp16 and bf16, within three for any segment.

Kind: as-compiled, sm_90.
"""

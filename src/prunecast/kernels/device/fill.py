"""Launches of `fill_rows.cu`: rows of C that lie in no tile."""

import numpy as np

from prunecast.kernels.device.build import SOURCES, CompiledKernel, compile_cubin
from prunecast.kernels.device.defines import ARCH, end_defines
from prunecast.kernels.device.launch import Place, PreparedLaunch

_THREADS = 256
"""Threads of a block. Kind: CUDA source, `fill_rows.cu`."""
_C, _C_ROW, _ARGUMENTS, _ARGUMENT_BYTES = 2, 3, 5, 8
"""Places of pointers and row lengths among the arguments, how many there are, and the bytes of each. Kind:
CUDA source, `fill_rows.cu`."""


class FillRows:
    """Writes what rows without weights come to, again and again, to wherever C lies.

    Parameters
    ----------
    function : handle of the loaded kernel
    rows, bias : device addresses; the caller keeps what lies there
    blocks : one for each row
    tokens : of a row of C, a multiple of 8
    """

    def __init__(self, function: int, rows: int, bias: int, *, blocks: int, tokens: int) -> None:
        # `tokens` is an int there, the lower half of its word
        values = np.array([rows, bias, 0, 0, tokens], np.uint64)
        self._words = values.data
        first = values.ctypes.data
        addresses = [first + _ARGUMENT_BYTES * argument for argument in range(_ARGUMENTS)]
        self._launch = PreparedLaunch(
            function, addresses, blocks=blocks, threads=_THREADS, shared_bytes=0, overlap=False
        )

    def __call__(self, c: Place, stream: int) -> None:
        """Enqueue it on a stream of the current device, by handle."""
        self._words[_C], self._words[_C_ROW] = c
        self._launch(stream)


def build_fill(dtype: str, activation: str, *, bias: bool) -> CompiledKernel:
    """Compile the kernel that writes rows of C that lie in no tile."""
    return compile_cubin(SOURCES / "fill_rows.cu", ARCH, end_defines(activation, bias=bias, dtype=dtype))

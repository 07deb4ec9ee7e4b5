"""Registers that configs of the kernel for few tokens compile to: how many of their blocks lie on an SM.

A plan says the most that a config may use on any architecture; here is what the compiler took for sm_90a
(CUDA 13), rounded up to the eight that an SM gives out at once.
"""

from prunecast.hardware.occupancy import BlockResources
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.small_n.configs import SmallConfig, by_words, small_resources

__all__ = ["compiled_registers", "compiled_resources"]

HOPPER = 90
"""Compute capability that the code was compiled for. Kind: definition, sm_90a."""
_IN_PIECES = {
    (16, 8): 56,
    (16, 16): 64,
    (16, 32): 64,
    (16, 64): 80,
    (32, 8): 56,
    (32, 16): 56,
    (32, 32): 80,
    (32, 64): 112,
    (64, 8): 64,
    (64, 16): 80,
    (64, 32): 120,
    (64, 64): 192,
}
"""Rows and tokens of a block -> registers of a thread, where rows of B come in pieces, or as one word. Kind:
as-compiled, sm_90a, CUDA 13."""
_BY_WORDS = {
    (16, 16): 64,
    (16, 32): 80,
    (16, 64): 120,
    (32, 16): 72,
    (32, 32): 88,
    (32, 64): 128,
    (64, 16): 88,
    (64, 32): 120,
    (64, 64): 200,
}
"""The same where they come as several words. 16 x 16 with 64 has two blocks of 16 warps to an SM, with 80
one. Kind: as-compiled, sm_90a, CUDA 13."""
_SHORT_RINGS = {(4, 4): 48, (4, 8): 48, (6, 8): 56}
"""Depth and warps -> registers of 16 x 16 in pieces, where they are fewer. Kind: as-compiled,
sm_90a, CUDA 13."""


def compiled_registers(config: SmallConfig, n: int) -> int:
    """Registers per thread as compiled, for `n` tokens in all."""
    tile = (config.block_m, config.block_n)
    if by_words(config, n) and config.tokens > 1:
        return _BY_WORDS[tile]
    fewer = _SHORT_RINGS.get((config.depth, config.warps)) if tile == (16, 16) else None
    return fewer or _IN_PIECES[tile]


def compiled_resources(config: SmallConfig, n: int, gpu: GpuSpec) -> BlockResources:
    """What a block really occupies; on other architectures the most that it may."""
    most = small_resources(config, n)
    if gpu.compute_capability != HOPPER:
        return most
    return most._replace(registers_per_thread=compiled_registers(config, n))

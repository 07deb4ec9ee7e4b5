"""When a block of the vendor's dense kernel on sm_90 has its first stage.

All blocks ask for their whole ring of stages at once, and DRAM serves what lies in its queue in no order of
stages: the first stage is there about when everything is. 768 x K with 512 tokens in tiles of 64 x 64 and
rings of 832 columns takes 4,040 cycles besides its products with 256 columns, 4,360 with 512, 4,660 with 1024
and 4,600 to 4,700 from there on to 6144: as long as DRAM needs for 0.7, 1.3 and 2.1 MB (cuBLAS 13.1, H200,
2026-11-21). Clusters of two, four and eight differ by less than 100 cycles.

Rings that hold all of K ask for everything at once. Then DRAM's work, which engines count themselves, is all
that is waited for, and the steps follow one another behind it: 100 products of up to 320 columns, drawn at
random, took 7.8 % less than with a whole start besides.
"""

import numpy as np
import numpy.typing as npt

from prunecast.hardware.spec import GpuSpec

__all__ = ["first_stage_cycles"]

FloatArray = npt.NDArray[np.float64]

STEP_BYTES, STEP_CYCLES = 128, 80
"""Of a k-step: what of a row of A is in it, and how long it takes where all operands are there: fitted to
165 products of up to 1,024 columns, drawn at random (H200, 2026-11-22)."""


def first_stage_cycles(
    m: int, k: int, n: int, element_bytes: int, ring_columns: FloatArray, parts: FloatArray, gpu: GpuSpec
) -> FloatArray:
    """Cycles that DRAM needs for what all blocks ask for before they have anything, as far as it queues that.

    Parameters
    ----------
    ring_columns : of A that the stages of a block hold
    parts : into which K is cut, each of which asks for a range of its own
    """
    asked = ring_columns * parts
    columns = np.minimum(float(k), asked)
    queued = np.minimum(columns * (m + n) * element_bytes, gpu.dram_queue_bytes)
    cycles = queued / gpu.dram_bytes_per_s * gpu.clock_burst_hz[0]
    steps = np.ceil(k * element_bytes / (STEP_BYTES * parts))
    return np.asarray(np.where(asked < k, cycles, np.minimum(cycles, STEP_CYCLES * (steps - 1.0))))

"""The CSR product is cut into short runs of elements, and counts what the library launches besides."""

import numpy as np
import pytest

from prunecast.hardware.load import load_gpu
from prunecast.kernels.csr import MOST_ELEMENTS, OTHER_LAUNCHES_S, plan_csr
from prunecast.models import estimate
from prunecast.patterns.element_map import ElementMap
from prunecast.simulator import simulate


def elements(kept: list[int]) -> ElementMap:
    """Rows that keep their first so many of 512 columns."""
    columns = np.concatenate([np.arange(count) for count in kept])
    start = np.concatenate([[0], np.cumsum(kept)])
    return ElementMap(m=len(kept), k=512, row_start=start, column_index=columns, pattern="unstructured")


def test_long_rows_are_cut_and_no_element_is_lost():
    work = plan_csr(elements([0, 1, 128, 129, 512]), 64, "fp16", load_gpu("h200-sxm")).work
    lengths = work.k_stop - work.k_start
    assert lengths.max() <= MOST_ELEMENTS
    assert np.bincount(work.tile, lengths).tolist() == [0, 1, 128, 129, 512]
    assert np.bincount(work.tile, work.owner).tolist() == [1, 1, 1, 1, 1]


@pytest.mark.parametrize("engine", [simulate, estimate])
def test_other_launches_are_part_of_the_launch_floor(engine):
    gpu = load_gpu("h200-sxm")
    result = engine(plan_csr(elements([8] * 4), 64, "fp16", gpu), gpu)
    assert result.launch_s == gpu.graph_launch_s + OTHER_LAUNCHES_S
    assert result.seconds == result.launch_s + result.cycles / result.clock_hz

"""A pass over memory: its seconds by hand, and laws that hold for all of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunecast.hardware import GpuSpec, MemoryPass, load_gpu

H200 = load_gpu("h200-sxm")
GPUS = [load_gpu(name) for name in ("h200-sxm", "a100-sxm4-80gb", "v100-sxm2-16gb", "l40s")]
bytes_moved = st.floats(0.0, 1e11)
seconds = st.floats(0.0, 1e-3)
passes = st.builds(
    MemoryPass,
    copied_bytes=bytes_moved,
    l2_bytes=bytes_moved,
    one_way_bytes=bytes_moved,
    start_s=seconds,
    overlapped_s=seconds,
    copy_share=st.none() | st.floats(0.01, 2.0),
)


def twin(work: MemoryPass, gpu: GpuSpec) -> float:
    """Each kind of bytes at its rate, one after the other."""
    by_size = gpu.l2_bytes_per_s if work.copied_bytes <= gpu.l2_usable_bytes else gpu.dram_copy_bytes_per_s
    rate = by_size if work.copy_share is None else work.copy_share * gpu.dram_copy_bytes_per_s
    traffic = sum(
        moved / speed
        for moved, speed in (
            (work.copied_bytes, rate),
            (work.l2_bytes, gpu.l2_bytes_per_s),
            (work.one_way_bytes, gpu.dram_bytes_per_s),
        )
    )
    return work.start_s + (traffic if traffic > work.overlapped_s else work.overlapped_s)


@given(passes, st.sampled_from(GPUS))
def test_seconds_are_those_of_the_twin(work: MemoryPass, gpu: GpuSpec) -> None:
    assert work.seconds(gpu) == pytest.approx(twin(work, gpu), rel=1e-12)


def test_a_tensor_that_fits_l2_moves_at_its_rate_and_a_larger_one_at_that_of_dram() -> None:
    # H200: 11 TB/s of L2, 3.85 TB/s of a copy in DRAM (hardware/data/h200-sxm.toml)
    assert MemoryPass(copied_bytes=11e6).seconds(H200) == pytest.approx(1e-6)
    assert MemoryPass(copied_bytes=3.85e9).seconds(H200) == pytest.approx(1e-3)
    assert MemoryPass(copied_bytes=3.85e6, copy_share=1.0).seconds(H200) == pytest.approx(1e-6)


def test_a_pass_without_bytes_needs_its_start_and_what_overlaps() -> None:
    assert MemoryPass().seconds(H200) == 0.0
    assert MemoryPass(start_s=2e-6, overlapped_s=3e-6).seconds(H200) == pytest.approx(5e-6)


@given(passes, passes, st.sampled_from(GPUS))
def test_more_of_anything_needs_no_less_time(one: MemoryPass, other: MemoryPass, gpu: GpuSpec) -> None:
    more = MemoryPass(
        *(max(pair) for pair in zip(one[:5], other[:5], strict=True)), copy_share=one.copy_share
    )
    assert more.seconds(gpu) >= one.seconds(gpu)


@given(bytes_moved, st.sampled_from(GPUS))
def test_two_halves_of_bytes_with_a_measured_rate_need_as_long_as_both(moved: float, gpu: GpuSpec) -> None:
    half = MemoryPass(copied_bytes=moved / 2, copy_share=0.7).seconds(gpu)
    assert 2 * half == pytest.approx(MemoryPass(copied_bytes=moved, copy_share=0.7).seconds(gpu))

"""Occupancy against the vendor's printed examples, and against placing blocks one by one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunecast.errors import BadInput
from prunecast.hardware import BlockResources, gpu_names, load_gpu, occupancy

KIB = 1024
GPUS = {name: load_gpu(name) for name in gpu_names()}


def count(name, threads, registers=16, shared=0):
    resources = BlockResources(threads=threads, registers_per_thread=registers, shared_bytes=shared)
    return occupancy(resources, GPUS[name])


def test_blocks_of_one_thread_fit_as_often_as_blocks_of_one_warp():
    for name in GPUS:
        assert count(name, 1) == count(name, 32)


class TestPrintedExamples:
    def test_best_practices_guide(self):
        # CUDA C++ Best Practices Guide, "Calculating Occupancy", compute capability 7.0, 37 registers:
        # blocks of 128 threads 12 per SM, 75 %; blocks of 320 threads four per SM, 63 %.
        small = count("v100-sxm2-16gb", 128, registers=37)
        assert (small.blocks_per_sm, small.share, small.limiter) == (12, 0.75, "registers")
        large = count("v100-sxm2-16gb", 320, registers=37)
        assert (large.blocks_per_sm, large.share, large.limiter) == (4, 0.625, "registers")

    def test_best_practices_guide_full_occupancy_needs_32_registers(self):
        # Same section: 65,536 registers and 2048 threads, so at most 32 registers per thread for 100 %.
        assert count("v100-sxm2-16gb", 256, registers=32).share == 1.0
        assert count("v100-sxm2-16gb", 256, registers=33).share < 1.0

    def test_programming_guide_one_more_register(self):
        # CUDA C++ Programming Guide, "Multiprocessor Level": 512 threads with 64 registers, two blocks; with
        # one more register, one block. Printed for 6.x, whose 65,536 registers are those of 7.0 and 8.0.
        for name in ("v100-sxm2-16gb", "a100-sxm4-80gb"):
            assert count(name, 512, registers=64).blocks_per_sm == 2
            assert count(name, 512, registers=65).blocks_per_sm == 1

    def test_programming_guide_blackwell(self):
        # CUDA Programming Guide 13, "Writing CUDA kernels", compute capability 10.0: 768 threads, 2 blocks,
        # 75 %; 32 threads, 32 blocks, 50 %; 100 KB of shared memory, 2 blocks.
        large = count("b200", 768)
        assert (large.blocks_per_sm, large.share, large.limiter) == (2, 0.75, "warps")
        small = count("b200", 32)
        assert (small.blocks_per_sm, small.share, small.limiter) == (32, 0.5, "blocks")
        assert count("b200", 32, shared=100 * KIB).blocks_per_sm == 2

    @pytest.mark.parametrize(
        ("name", "blocks"), [("a100-sxm4-40gb", 32), ("rtx-3090", 16), ("l4", 24), ("h100-sxm", 32)]
    )
    def test_tuning_guides_blocks_per_sm(self, name, blocks):
        # NVIDIA Ampere, Ada, Hopper Tuning Guides, "Occupancy": 32 for 8.0 and 9.0, 16 for 8.6, 24 for 8.9.
        assert count(name, 32).blocks_per_sm == blocks

    @pytest.mark.parametrize(
        ("name", "kib"),
        [("v100-sxm2-16gb", 96), ("t4", 64), ("a100-sxm4-80gb", 163), ("rtx-3090", 99), ("h200-sxm", 227)],
    )
    def test_tuning_guides_largest_block(self, name, kib):
        # NVIDIA Volta to Hopper Tuning Guides: what one thread block can address; 1 KB more is not launched.
        assert count(name, 128, shared=kib * KIB).blocks_per_sm == 1
        assert count(name, 128, shared=kib * KIB + 1).blocks_per_sm == 0


class TestLimiters:
    def test_registers(self):
        # 64 registers x 256 threads = a quarter of 65,536.
        result = count("a100-sxm4-80gb", 256, registers=64)
        assert (result.blocks_per_sm, result.limiter, result.warps_per_sm) == (4, "registers", 32)

    def test_warps(self):
        # Compute capability 8.6 and 8.9 hold 1536 threads: one block of 1024.
        result = count("rtx-4090", 1024)
        assert (result.blocks_per_sm, result.limiter, result.share) == (1, "warps", 32 / 48)

    def test_shared_memory_counts_the_reserved_kilobyte(self):
        # (81 + 1) KiB twice is 164 KiB exactly; one allocation unit more does not fit twice.
        full = count("a100-sxm4-80gb", 128, shared=81 * KIB)
        assert (full.blocks_per_sm, full.limiter) == (2, "shared memory")
        assert count("a100-sxm4-80gb", 128, shared=81 * KIB + 1).blocks_per_sm == 1

    def test_no_reserved_kilobyte_before_ampere(self):
        assert count("v100-sxm2-16gb", 128, shared=48 * KIB).blocks_per_sm == 2

    def test_first_limiter_wins_a_tie(self):
        # 2048 threads of 32 registers: warps and registers both allow 8 blocks of 256.
        result = count("h200-sxm", 256, registers=32)
        assert result.limits["warps"] == result.limits["registers"] == result.blocks_per_sm == 8
        assert result.limiter == "warps"

    def test_tile_kernel_of_the_reference_measurements(self):
        # Own measurement 2026-11-20: 384 threads, 168 registers at entry, 230,400 B: one block per SM.
        result = count("h200-sxm", 384, registers=168, shared=230_400)
        assert (result.blocks_per_sm, result.warps_per_sm) == (1, 12)

    def test_odd_thread_counts_take_whole_warps(self):
        assert count("a100-sxm4-80gb", 33).warps_per_sm == 2 * count("a100-sxm4-80gb", 33).blocks_per_sm


class TestRefusals:
    def test_too_many_threads(self):
        result = count("h200-sxm", 1025)
        assert (result.blocks_per_sm, result.limiter, result.share) == (0, "warps", 0.0)

    def test_too_many_registers_per_thread(self):
        result = count("h200-sxm", 32, registers=256)
        assert (result.blocks_per_sm, result.limiter) == (0, "registers")

    def test_too_many_registers_per_block(self):
        result = count("h200-sxm", 1024, registers=65)
        assert (result.blocks_per_sm, result.limiter) == (0, "registers")

    def test_too_much_shared_memory(self):
        result = count("t4", 128, shared=64 * KIB + 1)
        assert (result.blocks_per_sm, result.limiter) == (0, "shared memory")

    @pytest.mark.parametrize(
        "resources", [BlockResources(0, 32, 0), BlockResources(32, -1, 0), BlockResources(32, 32, -1)]
    )
    def test_nonsense(self, resources):
        with pytest.raises(
            BadInput, match=r"at least 1 thread and no negative resource, got BlockResources\("
        ):
            occupancy(resources, GPUS["t4"])


def placed(resources, gpu):
    """Place blocks on an empty SM one by one, warp by warp into the emptiest sub-partition."""
    unit = gpu.register_allocation_per_warp
    registers_per_warp = -(-32 * resources.registers_per_thread // unit) * unit
    unit = gpu.shared_allocation_bytes
    shared_per_block = -(-(resources.shared_bytes + gpu.shared_reserved_bytes_per_block) // unit) * unit
    free = [gpu.registers_per_sm // 4] * 4
    slots, shared, blocks = gpu.warps_per_sm, gpu.shared_bytes_per_sm, 0
    while blocks < gpu.blocks_per_sm:
        shared -= shared_per_block
        for _ in range(-(-resources.threads // 32)):
            emptiest = free.index(max(free))
            free[emptiest] -= registers_per_warp
            slots -= 1
        if min(free) < 0 or slots < 0 or shared < 0:
            break
        blocks += 1
    return blocks


@given(
    st.sampled_from(list(GPUS.values())),
    st.integers(1, 1024),
    st.integers(0, 255),
    st.integers(0, 227 * KIB),
)
def test_same_as_placing_blocks_one_by_one(gpu, threads, registers, shared):
    resources = BlockResources(threads, registers, min(shared, gpu.shared_bytes_per_block))
    result = occupancy(resources, gpu)
    assert result.blocks_per_sm == placed(resources, gpu)
    assert result.blocks_per_sm == min(result.limits.values()) == result.limits[result.limiter]
    assert result.share == result.warps_per_sm / gpu.warps_per_sm <= 1.0

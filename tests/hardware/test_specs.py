"""The specs that come with the package: complete, sourced, and in agreement with the vendor's figures."""

from typing import NamedTuple

import pytest

from prunecast.hardware import KINDS, gpu_names, load_gpu
from prunecast.hardware.spec import quantity_units


class Published(NamedTuple):
    """Dense rates that the vendor prints, and the clock that the tensor rates are meant at."""

    source: str
    clock_mhz: int
    fp16_tflops: float
    """With fp32 accumulation, without sparsity."""
    tf32_tflops: float
    fp32_tflops: float


PUBLISHED = {
    "v100-sxm2-16gb": Published("Tesla V100 whitepaper WP-08608, table 1", 1530, 125, 0, 15.7),
    "t4": Published("T4 datasheet, 2019", 1590, 65, 0, 8.1),
    "rtx-3090": Published("GA102 whitepaper, table of the RTX 3090", 1695, 71, 35.6, 35.6),
    "a100-sxm4-40gb": Published("A100 datasheet, 2021", 1410, 312, 156, 19.5),
    "a100-sxm4-80gb": Published("A100 datasheet, 2021", 1410, 312, 156, 19.5),
    "rtx-4090": Published("Ada whitepaper, table of the RTX 4090", 2520, 165.2, 82.6, 82.6),
    "l4": Published("L4 datasheet, 2023, sparse figures halved", 2040, 121, 60, 30.3),
    "l40s": Published("L40S datasheet, 2023", 2520, 362, 183, 91.6),
    "h100-sxm": Published("H100 datasheet, 2023, sparse figures halved", 1830, 989.5, 494.5, 67),
    "h100-pcie": Published("H100 datasheet, 2023, sparse figures halved", 1620, 756.5, 378, 51),
    "h200-sxm": Published("H200 datasheet, 2024, sparse figures halved", 1830, 989.5, 494.5, 67),
    "b200": Published("HGX B200 datasheet, 2024, per GPU; clock not printed", 1860, 2250, 1125, 75),
}


@pytest.fixture(params=gpu_names())
def gpu(request):
    return load_gpu(request.param)


def tflops(gpu, fma_per_clk, clock_mhz):
    return 2 * gpu.sm_count * fma_per_clk * clock_mhz * 1e6 / 1e12


class TestAgainstTheDatasheet:
    def test_fp16_rate(self, gpu):
        printed = PUBLISHED[gpu.name]
        ours = tflops(gpu, gpu.tensor_fp16_fma_per_clk_per_sm, printed.clock_mhz)
        assert ours == pytest.approx(printed.fp16_tflops, rel=0.02)

    def test_tf32_rate(self, gpu):
        printed = PUBLISHED[gpu.name]
        ours = tflops(gpu, gpu.tensor_tf32_fma_per_clk_per_sm, printed.clock_mhz)
        assert ours == pytest.approx(printed.tf32_tflops, rel=0.02)

    def test_fp32_rate(self, gpu):
        # Printed for the highest clock; only Hopper's and Blackwell's tensor rates are meant at a lower one.
        ours = tflops(gpu, gpu.fp32_fma_per_clk_per_sm, gpu.max_clock_hz / 1e6)
        assert ours == pytest.approx(PUBLISHED[gpu.name].fp32_tflops, rel=0.02)

    def test_printed_clock_is_reachable(self, gpu):
        assert PUBLISHED[gpu.name].clock_mhz * 1e6 <= gpu.max_clock_hz

    @pytest.mark.parametrize(
        ("name", "gigabytes_per_s"),
        [
            ("v100-sxm2-16gb", 900),
            ("t4", 320),
            ("rtx-3090", 936),
            ("a100-sxm4-40gb", 1555),
            ("a100-sxm4-80gb", 2039),
            ("rtx-4090", 1008),
            ("l4", 300),
            ("l40s", 864),
            ("h100-sxm", 3350),
            ("h100-pcie", 2000),
            ("h200-sxm", 4800),
            ("b200", 8000),
        ],
    )
    def test_memory_bandwidth(self, name, gigabytes_per_s):
        # Source: the datasheets above.
        assert load_gpu(name).dram_peak_bytes_per_s == pytest.approx(gigabytes_per_s * 1e9, rel=0.02)


class TestLaws:
    def test_every_achieved_bandwidth_is_a_large_share_of_its_peak(self, gpu):
        # RRZE-HPC/gpu-benches copies reach 83 to 94 % on V100, A100, A40, L40, H100; the T4 is a guess at 78.
        assert 0.75 <= gpu.dram_bytes_per_s / gpu.dram_peak_bytes_per_s <= 0.97

    def test_l2_is_faster_than_dram(self, gpu):
        assert gpu.l2_bytes_per_s > 1.8 * gpu.dram_bytes_per_s

    def test_bf16_runs_at_the_fp16_rate_or_not_at_all(self, gpu):
        expected = 0 if gpu.compute_capability < 80 else gpu.tensor_fp16_fma_per_clk_per_sm
        assert gpu.tensor_bf16_fma_per_clk_per_sm == expected

    def test_generation(self, gpu):
        before_ampere = gpu.compute_capability < 80
        assert gpu.sparse_tensor_factor == (0.0 if before_ampere else 2.0)
        assert gpu.shared_reserved_bytes_per_block == (0 if before_ampere else 1024)
        assert gpu.has_async_copy is not before_ampere
        assert gpu.has_wgmma is gpu.name.startswith(("h100", "h200"))
        assert (gpu.mma_sync_share < 1.0) is (gpu.compute_capability >= 90)

    def test_sms_of_one_architecture_hold_the_same(self):
        # Source: CUDA C++ Programming Guide, technical specifications per compute capability:
        # warps, blocks, shared KiB per SM, shared KiB per block.
        table = {
            70: (64, 32, 96, 96),
            75: (32, 16, 64, 64),
            80: (64, 32, 164, 163),
            86: (48, 16, 100, 99),
            89: (48, 24, 100, 99),
            90: (64, 32, 228, 227),
            100: (64, 32, 228, 227),
        }
        for gpu in map(load_gpu, gpu_names()):
            shared = (gpu.shared_bytes_per_sm // 1024, gpu.shared_bytes_per_block // 1024)
            assert (gpu.warps_per_sm, gpu.blocks_per_sm, *shared) == table[gpu.compute_capability], gpu.name

    def test_block_and_what_the_system_reserves_fill_the_shared_memory(self, gpu):
        assert gpu.shared_bytes_per_block + gpu.shared_reserved_bytes_per_block == gpu.shared_bytes_per_sm


class TestProvenance:
    def test_every_quantity_has_one(self, gpu):
        assert {name: row.unit for name, row in gpu.provenance.items()} == quantity_units()
        assert all(row.kind in KINDS for row in gpu.provenance.values())

    def test_sources_name_documents_and_measurements_not_files(self, gpu):
        forbidden = ("shared/", "reference/", "../", "/work", "/home", "\\", ".md", ".txt", ".csv", "://")
        for quantity, row in gpu.provenance.items():
            assert len(row.source) > 5, quantity
            assert not any(part in row.source for part in forbidden), quantity

    def test_what_is_carried_over_is_called_a_guess(self, gpu):
        for quantity, row in gpu.provenance.items():
            if "arried over" in row.source:
                assert row.kind == "guess", quantity

    def test_own_measurements_are_of_the_h200(self, gpu):
        for quantity, row in gpu.provenance.items():
            if row.source.startswith("own measurement"):
                assert gpu.name == "h200-sxm", quantity
                assert row.kind == "measured", quantity

    def test_rows_cannot_be_changed(self, gpu):
        with pytest.raises(TypeError):
            gpu.provenance["sm_count"] = None


def test_reference_h200():
    # Source: own measurement 2026-11-20, driver 580: device attributes, 512 MiB copied, smallest graph node.
    gpu = load_gpu("h200-sxm")
    assert (gpu.sm_count, gpu.l2_bytes) == (132, 60 * 1024**2)
    assert (gpu.dram_bytes_per_s, gpu.graph_launch_s) == (3.75e12, 1.14e-6)

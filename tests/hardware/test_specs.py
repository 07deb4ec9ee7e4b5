"""The specs that come with the package: complete, sourced, and in agreement with the vendor's figures."""

import pytest

from prunecast.hardware import KINDS, gpu_names, load_gpu
from prunecast.hardware.spec import quantity_units
from tests.hardware.published import PUBLISHED


@pytest.fixture(params=gpu_names())
def gpu(request):
    return load_gpu(request.param)


def provenance_of(name):
    return load_gpu(name).provenance.values()


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

    def test_memory_bandwidth(self, gpu):
        printed = PUBLISHED[gpu.name].dram_gigabytes_per_s
        assert gpu.dram_peak_bytes_per_s == pytest.approx(printed * 1e9, rel=0.02)


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
        # Datasheets say twice the dense rate from Ampere on; what kernels were seen to reach may be less
        factor, seen = gpu.sparse_tensor_factor, gpu.provenance["sparse_tensor_factor"].kind != "datasheet"
        assert (1.5 <= factor <= 2.0) if seen and factor else factor == (0.0 if before_ampere else 2.0)
        assert gpu.shared_reserved_bytes_per_block == (0 if before_ampere else 1024)
        assert gpu.has_async_copy is not before_ampere
        assert gpu.has_wgmma is gpu.name.startswith(("h100", "h200", "h20", "gh200"))
        # GeForce and workstation Blackwell have mma.sync alone, as Ampere
        assert (gpu.mma_sync_share < 1.0) is (90 <= gpu.compute_capability < 120)

    def test_sms_of_one_architecture_hold_the_same(self):
        # Source: CUDA C++ Programming Guide, technical specifications per compute capability:
        # warps, blocks, shared KiB per SM, shared KiB per block.
        table = {
            61: (64, 32, 96, 48),
            70: (64, 32, 96, 96),
            75: (32, 16, 64, 64),
            80: (64, 32, 164, 163),
            86: (48, 16, 100, 99),
            87: (48, 16, 164, 163),
            89: (48, 24, 100, 99),
            90: (64, 32, 228, 227),
            100: (64, 32, 228, 227),
            103: (64, 32, 228, 227),
            110: (48, 24, 228, 227),
            120: (48, 24, 100, 99),
            121: (48, 24, 100, 99),
        }
        for gpu in map(load_gpu, gpu_names()):
            shared = (gpu.shared_bytes_per_sm // 1024, gpu.shared_bytes_per_block // 1024)
            assert (gpu.warps_per_sm, gpu.blocks_per_sm, *shared) == table[gpu.compute_capability], gpu.name

    def test_block_and_what_the_system_reserves_fill_the_shared_memory(self, gpu):
        filled = gpu.shared_bytes_per_sm if gpu.compute_capability >= 70 else gpu.shared_bytes_per_sm // 2
        assert gpu.shared_bytes_per_block + gpu.shared_reserved_bytes_per_block == filled


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

    def test_own_measurements_are_measured_on_this_gpu(self, gpu):
        # A file that began as a copy of another may not keep what was measured there.
        of_others = {row.source for name in gpu_names() if name != gpu.name for row in provenance_of(name)}
        for quantity, row in gpu.provenance.items():
            if row.source.startswith("own measurement"):
                assert row.kind == "measured", quantity
                assert row.source not in of_others, quantity

    def test_rows_cannot_be_changed(self, gpu):
        with pytest.raises(TypeError):
            gpu.provenance["sm_count"] = None


def test_reference_h200():
    # Source: own measurements, driver 580: attributes, reads of DRAM, blocks of 200 KB in a graph.
    gpu = load_gpu("h200-sxm")
    assert (gpu.sm_count, gpu.l2_bytes) == (132, 60 * 1024**2)
    assert (gpu.dram_bytes_per_s, gpu.graph_launch_s) == (4.5e12, 1.05e-6)

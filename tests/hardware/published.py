"""What vendors print about the GPUs that come with the package, one line each."""

from typing import NamedTuple


class Published(NamedTuple):
    """Dense rates that the vendor prints, the clock of the tensor rates, and the memory's rate."""

    source: str
    clock_mhz: int
    fp16_tflops: float
    """With fp32 accumulation, without sparsity."""
    tf32_tflops: float
    fp32_tflops: float
    dram_gigabytes_per_s: float


PUBLISHED = {
    "v100-sxm2-16gb": Published("Tesla V100 whitepaper WP-08608, table 1", 1530, 125, 0, 15.7, 900),
    "t4": Published("T4 datasheet, 2019", 1590, 65, 0, 8.1, 320),
    "rtx-3090": Published("GA102 whitepaper, table of the RTX 3090", 1695, 71, 35.6, 35.6, 936),
    "a100-sxm4-40gb": Published("A100 datasheet, 2021", 1410, 312, 156, 19.5, 1555),
    "a100-sxm4-80gb": Published("A100 datasheet, 2021", 1410, 312, 156, 19.5, 2039),
    "rtx-4090": Published("Ada whitepaper, table of the RTX 4090", 2520, 165.2, 82.6, 82.6, 1008),
    "l4": Published("L4 datasheet, 2023, sparse figures halved", 2040, 121, 60, 30.3, 300),
    "l40s": Published("L40S datasheet, 2023", 2520, 362, 183, 91.6, 864),
    "h100-sxm": Published("H100 datasheet, 2023, sparse figures halved", 1830, 989.5, 494.5, 67, 3350),
    "h100-pcie": Published("H100 datasheet, 2023, sparse figures halved", 1620, 756.5, 378, 51, 2000),
    "h200-sxm": Published("H200 datasheet, 2024, sparse figures halved", 1830, 989.5, 494.5, 67, 4800),
    "b200": Published("HGX B200 datasheet, 2024, per GPU; clock not printed", 1860, 2250, 1125, 75, 8000),
}

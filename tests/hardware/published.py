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
    "a100-pcie-40gb": Published("A100 datasheet, 2021", 1410, 312, 156, 19.5, 1555),
    "a100-pcie-80gb": Published("A100 datasheet, 2021", 1410, 312, 156, 19.5, 1935),
    "a30": Published("A30 datasheet, 2022", 1440, 165, 82, 10.3, 933),
    "a10": Published("A10 datasheet, 2022", 1695, 125, 62.5, 31.2, 600),
    "a40": Published("A40 datasheet, 2021, sparse figures halved", 1740, 149.7, 74.8, 37.4, 696),
    "h100-nvl": Published("H100 NVL datasheet, 2024, sparse figures halved", 1545, 835, 417.5, 60, 3938),
    "h200-nvl": Published("H200 NVL datasheet, 2025, sparse figures halved", 1545, 835.5, 418, 60, 4800),
    "h20": Published("H20 as resellers print it, 2024; fp32 rate by arithmetic", 1853, 148, 74, 37, 4000),
    "gh200": Published("GH200 datasheet, 2023, sparse figures halved", 1830, 989.5, 494.5, 67, 4000),
    "b300": Published("HGX B300 datasheet, 2025, per GPU; clock not printed", 1860, 2250, 1125, 75, 8000),
    "rtx-5090": Published("RTX Blackwell whitepaper, table 3", 2407, 209.5, 104.8, 104.8, 1792),
    "rtx-5080": Published("RTX Blackwell whitepaper, table of the RTX 5080", 2617, 112.6, 56.3, 56.3, 960),
    "rtx-4080": Published("Ada whitepaper, table of the RTX 4080", 2505, 97.5, 48.7, 48.7, 717),
    "rtx-3080": Published("GA102 whitepaper, table of the RTX 3080", 1710, 59.5, 29.8, 29.8, 760),
    "rtx-2080-ti": Published("Turing whitepaper, reference card", 1545, 53.8, 0, 13.4, 616),
    "rtx-6000-ada": Published("RTX 6000 Ada datasheet, 2023, sparse halved", 2505, 364.2, 182.1, 91.1, 960),
    "rtx-pro-6000": Published("RTX Blackwell PRO whitepaper, 2025", 2617, 503.8, 251.9, 126, 1792),
    "gb10": Published(
        "DGX Spark datasheet, 2025: an eighth of the sparse fp4 rate", 2525, 125, 62.5, 31, 273
    ),
    "jetson-agx-orin": Published(
        "Orin technical brief, 2022, a quarter of int8", 1300, 42.5, 21.3, 5.3, 204.8
    ),
    "jetson-agx-thor": Published("T5000 datasheet, 2025, an eighth of sparse fp4", 1575, 259, 129, 8.06, 273),
    "gtx-1080-ti": Published("GTX 1080 Ti specifications, 2017", 1582, 0, 0, 11.3, 484),
    "v100-pcie-16gb": Published("V100 datasheet, 2020", 1380, 112, 0, 14, 900),
    "v100-sxm2-32gb": Published("V100 datasheet, 2020", 1530, 125, 0, 15.7, 900),
    "b200": Published("HGX B200 datasheet, 2024, per GPU; clock not printed", 1860, 2250, 1125, 75, 8000),
    "gb200": Published("GB200 NVL72 datasheet, 2024, per GPU; clock not printed", 2008, 2500, 1250, 80, 8000),
    "gb300": Published("GB300 NVL72 datasheet, 2025, per GPU; clock not printed", 2008, 2500, 1250, 80, 8000),
}

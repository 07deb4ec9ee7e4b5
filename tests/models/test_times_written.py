"""Predicted times of typical launches, written out: python -m tests.models.test_times_written

Whoever changes a rule of the models, the simulator or the choice of plans sees here which times change and by
how much. Lines of `times.txt` may change only with such a rule or a fitted number; a new kernel adds lines.
The command above writes the file anew, in minutes.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from prunecast.choice import fastest_plan
from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.kernels import KERNELS
from prunecast.models import estimate
from prunecast.patterns import parse_pattern
from prunecast.plan.kernel_plan import KernelPlan
from prunecast.simulator import simulate
from prunecast.workload.pruned_maps import sparsity_for

FILE = Path(__file__).with_name("times.txt")
GPUS = (("h200-sxm", "fp16"), ("a100-sxm4-80gb", "bf16"), ("v100-sxm2-32gb", "fp32"), ("b200", "fp16"))
GPUS += (("t4", "fp16"), ("rtx-4090", "fp16"))
M, K = 640, 1536
TOKENS = (1, 32, 1000)
PATTERNS = {"stspmm": "atp:64", "tile-wise": "tile-wise:128", "small-n": "tile-wise:64"}


def plans(gpu_name: str, dtype: str) -> Iterator[tuple[str, KernelPlan]]:
    """The chosen plan of each kernel, for weights whose columns and rows differ in scale."""
    gpu, rng = load_gpu(gpu_name), np.random.default_rng(0)
    columns, tiles = np.exp(0.7 * rng.standard_normal(K)), np.exp(0.5 * rng.standard_normal(M // 64))
    scales = columns * np.repeat(tiles, 64)[:, None]
    weights = np.abs(rng.standard_normal((M, K)) * scales).astype(np.float32)
    for n in TOKENS:
        for kernel, family in KERNELS.items():
            pattern = parse_pattern(PATTERNS.get(kernel, family.natural_pattern))
            mask = pattern.prune({"w": weights}, sparsity_for(pattern, 0.8, natural=True))["w"]
            with suppress(BadInput):  # kernels that do not run this number format or N
                plan = fastest_plan(kernel, pattern.map(mask), n, dtype, gpu)
                yield f"{gpu_name} {dtype} {kernel} {n}", plan


def lines(gpu_name: str, dtype: str) -> list[str]:
    gpu, found = load_gpu(gpu_name), []
    for name, plan in plans(gpu_name, dtype):
        burst, sustained = (estimate(plan, gpu, state=state) for state in ("burst", "sustained"))
        run = simulate(plan, gpu)
        numbers = {
            "us": 1e6 * burst.seconds,
            "sustained_us": 1e6 * sustained.seconds,
            "written": burst.written_share,
            "simulated_us": 1e6 * run.seconds,
            "simulated_cycles": run.cycles,
            "dram_bytes": run.dram_bytes,
            "l2_bytes": run.l2_bytes,
        }
        values = " ".join(f"{key}={value:.7g}" for key, value in numbers.items())
        found.append(f"{name} {values}")
    return found


def numbers_of(line: str) -> tuple[str, dict[str, float]]:
    words = line.split()
    return " ".join(words[:4]), {key: float(value) for key, _, value in (w.partition("=") for w in words[4:])}


@pytest.mark.parametrize(("gpu_name", "dtype"), GPUS)
def test_predicted_times_change_only_on_purpose(gpu_name, dtype):
    written = [line for line in FILE.read_text().splitlines() if line.startswith(f"{gpu_name} {dtype} ")]
    for line, before in zip(lines(gpu_name, dtype), written, strict=True):
        (name, found), (name_before, wanted) = numbers_of(line), numbers_of(before)
        assert name == name_before
        assert found == pytest.approx(wanted, rel=1e-5), name


if __name__ == "__main__":
    FILE.write_text("".join(f"{line}\n" for case in GPUS for line in lines(*case)))

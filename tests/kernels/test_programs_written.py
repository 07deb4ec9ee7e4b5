"""Programs of typical plans, written out: python -m tests.kernels.test_programs_written

The costs of kernels (`costs/sm_*.toml`) were fitted with the amounts of these programs. A change of an amount
without a new fit changes predicted times, so `programs.txt` may change only together with costs, or with a
reason. The command above writes it anew.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from prunecast.choice import PrunedMap, configs_of, fastest_plan, plan_with
from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec, load_gpu
from prunecast.kernels import KERNELS, ConvShape, implicit_plan, plan_dense
from prunecast.patterns import parse_pattern
from prunecast.plan.kernel_plan import KernelPlan
from prunecast.plan.program import SECTIONS, Instruction, WarpProgram, When
from prunecast.workload.pruned_maps import sparsity_for

FILE = Path(__file__).with_name("programs.txt")
GPUS = (("h200-sxm", "fp16"), ("a100-sxm4-80gb", "fp16"), ("v100-sxm2-32gb", "fp32"), ("b200", "fp16"))
CONV = ConvShape(channels=128, height=12, width=25, kernel_h=2, kernel_w=2, padding=0)
M, K = 512, 512
DEFAULTS = Instruction._field_defaults


def plans(gpu_name: str, dtype: str) -> Iterator[tuple[str, KernelPlan]]:
    """The first and the last config of each kernel, with one, 16 and 264 tokens."""
    gpu = load_gpu(gpu_name)
    weights = np.abs(np.random.default_rng(0).standard_normal((M, K), dtype=np.float32))
    for n in (1, 16, 264):
        yield f"{gpu_name} {dtype} dense {n}", plan_dense(M, K, n, dtype, gpu)
        for kernel, family in KERNELS.items():
            pattern = parse_pattern(family.natural_pattern)
            if kernel == "dense":
                continue
            kept = pattern.prune({"w": weights}, sparsity_for(pattern, 0.75, natural=True))["w"]
            with suppress(BadInput):  # kernels that do not run this number format or number of tokens
                for plan in plans_of(kernel, pattern.map(kept), n, dtype, gpu):
                    yield f"{gpu_name} {dtype} {kernel} {n} {plan.config}", plan


def plans_of(kernel: str, kept: PrunedMap, n: int, dtype: str, gpu: GpuSpec) -> Iterator[KernelPlan]:
    if kernel == "csr":  # has one config
        yield fastest_plan(kernel, kept, n, dtype, gpu)
        return
    configs = configs_of(kernel, kept, n, dtype, gpu)
    for config in configs[:1] + configs[1:][-1:]:
        plan = plan_with(config, kernel, kept, n, dtype, gpu)
        yield plan
        if kernel == "stspmm" and n == 264:
            yield implicit_plan(plan, CONV)


def lines(gpu_name: str, dtype: str) -> list[str]:
    """One line for each program, without those of an earlier plan."""
    texts: dict[str, str] = {}
    for name, plan in plans(gpu_name, dtype):
        for program in plan.programs:
            texts.setdefault(text_of(program), name)
    return [f"{name}: {text}" for text, name in texts.items()]


def text_of(program: WarpProgram) -> str:
    sections = ((section, getattr(program, section)) for section in SECTIONS)
    code = (f"{name}: {', '.join(map(instruction_text, found))}" for name, found in sections if found)
    return f"{program.warps} {program.role} warps | {' | '.join(code)}"


def instruction_text(instruction: Instruction) -> str:
    values = instruction._asdict()
    given = {name: value for name, value in values.items() if name != "op" and value != DEFAULTS[name]}
    if "charges" in given:
        given["charges"] = [f"{each.name} x {each.times:.6g} on {each.field}" for each in instruction.charges]
    if "when" in given:
        given["when"] = When(instruction.when).name
    return " ".join((instruction.op.name, *(f"{name}={value}" for name, value in given.items())))


@pytest.mark.parametrize(("gpu_name", "dtype"), GPUS)
def test_programs_are_those_with_which_costs_were_fitted(gpu_name, dtype):
    written = [line for line in FILE.read_text().splitlines() if line.startswith(f"{gpu_name} {dtype} ")]
    assert lines(gpu_name, dtype) == written


if __name__ == "__main__":
    FILE.write_text("".join(f"{line}\n" for case in GPUS for line in lines(*case)))

"""What physics says of any kernel: cases drawn at random, and how far a prediction goes against a law."""

import argparse
import itertools
import random
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from prunecast.choice import fastest_plan
from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec, load_gpu
from prunecast.kernels import KERNELS, KernelPlan, plan_dense
from prunecast.models import estimate
from prunecast.patterns import parse_pattern, weigh
from prunecast.simulator import simulate

__all__ = ["ALLOWED", "ENGINES", "LAWS", "Case", "allowed", "drawn", "excess"]

ENGINES = {"model": estimate, "simulator": simulate}
GPU = load_gpu("h200-sxm")


class Case(NamedTuple):
    """One layer, its pruning and what runs it."""

    kernel: str
    pattern: str
    m: int
    k: int
    n: int
    sparsity: float | None
    seed: int
    gpu: GpuSpec = GPU

    def plan(self) -> KernelPlan:
        """Raises BadInput where the kernel cannot run it."""
        if self.pattern == "dense":
            return plan_dense(self.m, self.k, self.n, "fp16", self.gpu)
        pattern = parse_pattern(self.pattern)
        weights = np.random.default_rng(self.seed).standard_normal((self.m, self.k), np.float32)
        mask = pattern.prune({"a": weigh("a", weights)}, self.sparsity)["a"]
        return fastest_plan(self.kernel, pattern.map(mask), n=self.n, dtype="fp16", gpu=self.gpu)


def drawn(kernel: str, seed: int) -> Case:
    """A layer of 64 to 2048 rows and columns, tokens in whole vectors."""
    draw = random.Random(f"{kernel} {seed}")
    known = KERNELS[kernel]
    pattern = known.natural_pattern if known.prunes else "dense"
    m, k = (draw.choice((64, 128, 192, 256, 512, 1000, 1024, 2048)) for _ in range(2))
    most = known.most_tokens or 4096
    n = draw.choice([n for n in (16, 32, 64, 128, 512, 1024, 4096) if n <= most])
    return Case(kernel, pattern, m, k, n, draw.choice((0.5, 0.6, 0.75, 0.85)), seed)


def _sparser(case: Case) -> Case:
    assert case.sparsity is not None
    return case._replace(sparsity=case.sparsity + 0.1)


def _fewer_tokens(case: Case) -> Case:
    return case._replace(n=case.n // 2)


def _more_sms(case: Case) -> Case:
    return case._replace(gpu=replace(case.gpu, sm_count=2 * case.gpu.sm_count))


def _more_bandwidth(case: Case) -> Case:
    rates = ("dram_peak_bytes_per_s", "dram_bytes_per_s", "dram_write_bytes_per_s", "dram_copy_bytes_per_s")
    doubled = {name: 2.0 * getattr(case.gpu, name) for name in rates}
    return case._replace(gpu=replace(case.gpu, **doubled))


LAWS = {
    "sparser": _sparser,
    "fewer tokens": _fewer_tokens,
    "more SMs": _more_sms,
    "more bandwidth": _more_bandwidth,
}
"""Each makes a case that should be no slower."""


def excess(law: str, case: Case, engine: str) -> float | None:
    """How much slower the case that should be no slower is, as a share; None where one cannot be run."""
    run = ENGINES[engine]
    try:
        plans = [(one.plan(), one.gpu) for one in (case, LAWS[law](case))]
        before, after = (run(plan, gpu).seconds for plan, gpu in plans)
    except BadInput:
        return None
    return after / before - 1.0


ALLOWED = {
    ("sparser", "csr"): (0.15, "rows of unequal length: the balance over SMs, which `explain` shows"),
    ("fewer tokens", ""): (0.06, "half the tokens get another configuration, which a bound chose"),
    ("more bandwidth", "small-n"): (
        0.03,
        "probably warps in step, which wait longer for each other than those that DRAM's queue staggers",
    ),
    ("more SMs", ""): (0.2, "probably the configuration chosen for more SMs, where a bound is near another"),
}
"""Law and kernel, `` for all: how much slower a case may be that should be no slower, and why."""
ROUNDING = 0.01


def allowed(law: str, kernel: str) -> float:
    """What the worst known cause explains, or rounding."""
    found = ALLOWED.get((law, kernel)) or ALLOWED.get((law, ""))
    return ROUNDING if found is None else found[0]


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=50)
    parser.add_argument("--engine", choices=list(ENGINES), default="model")
    asked = parser.parse_args()
    for kernel, law in itertools.product(KERNELS, LAWS):
        if KERNELS[kernel].parts or (
            law == "sparser" and KERNELS[kernel].natural_pattern in ("2:4", "dense")
        ):
            continue
        found = [(excess(law, drawn(kernel, seed), asked.engine), seed) for seed in range(asked.cases)]
        worst = max(((over, seed) for over, seed in found if over is not None), default=(0.0, 0))
        print(f"{kernel:14} {law:15} {worst[0]:+.3f} {drawn(kernel, worst[1])[:7]}")


if __name__ == "__main__":
    _main()

"""How fast are torch's grouped and scaled products? Times `_grouped_mm` over experts and `_scaled_mm` in fp8.

    python -m benchmarks.kernels.grouped OUT.csv SECONDS

Grouped products are one product of all experts of a layer in bf16, with the tokens of each expert that a
routing gives; weights exceed L2. Scaled products have one scale for each operand and bf16 outputs; sets of
weights rotate. Tokens are columns `n`, rows of the weights `m`. Times are of launches in one CUDA graph, as
`benchmarks.kernels.attention` takes them. It ends after SECONDS.
"""

import csv
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks.kernels.attention import first_seconds, seconds_of
from prunecast.kernels.libraries.experts.routing import expert_loads
from prunecast.validation.measure.rotation import rotating_sets

LAYERS = ((128, 8, 2048, 768), (8, 2, 4096, 14336), (64, 6, 2048, 1408), (160, 8, 5120, 1536))
"""Experts, experts of a token, hidden and inner width: Qwen3-30B-A3B, Mixtral, DeepSeek-V2-Lite, GLM."""
TOKENS = (1, 16, 64, 256, 1024, 4096)
ROUTINGS = ("balanced", "power-law:1.01")
SIDES = (1024, 2048, 4096, 8192)
COLUMNS = ("kind", "m", "k", "n", "experts", "per_token", "routing", "seconds")


class Case(NamedTuple):
    """Sizes of one product; `experts` is 0 for scaled products."""

    kind: str
    m: int
    k: int
    n: int
    experts: int = 0
    per_token: int = 0
    routing: str = ""


def cases() -> Iterator[Case]:
    """Both products of experts, and square and long scaled products."""
    for tokens in TOKENS:
        for experts, per_token, hidden, width in LAYERS:
            for routing in ROUTINGS:
                yield Case("grouped", 2 * width, hidden, tokens, experts, per_token, routing)
                yield Case("grouped", hidden, width, tokens, experts, per_token, routing)
        for m in SIDES:
            for k in SIDES:
                yield Case("scaled", m, k, max(tokens, 16))


def call_of(case: Case) -> Callable[[int], Any]:
    """The call of a case on random operands."""
    if case.kind == "grouped":
        loads = expert_loads(case.experts, case.per_token, case.n, case.routing)
        x = torch.randn(int(loads.sum()), case.k, dtype=torch.bfloat16, device="cuda")
        weights = torch.randn(case.experts, case.m, case.k, dtype=torch.bfloat16, device="cuda")
        ends = torch.tensor(loads.cumsum(), dtype=torch.int32, device="cuda")
        return lambda number: torch._grouped_mm(x, weights.transpose(1, 2), offs=ends)
    sets = rotating_sets(case.m * case.k)

    def fp8(rows: int) -> Any:
        return torch.randn(rows, case.k, device="cuda").to(torch.float8_e4m3fn)

    x, weights, one = fp8(case.n), [fp8(case.m) for _ in range(sets)], torch.ones((), device="cuda")
    return lambda number: torch._scaled_mm(
        x, weights[number % sets].t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16
    )


def main() -> None:
    """Time the cases until the time is over."""
    path, stop_s = Path(sys.argv[1]), time.monotonic() + float(sys.argv[2])
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(COLUMNS)
        for case in cases():
            if time.monotonic() > stop_s:
                break
            try:
                call = call_of(case)
                rows.writerow((*case, f"{seconds_of(call, first_seconds(call)):.5g}"))
            except RuntimeError as error:
                print(case, str(error).splitlines()[0][:120])
            file.flush()
            torch.cuda.empty_cache()
    print(f"{torch.__version__}, {torch.cuda.get_device_name()}, {path.read_text().count(chr(10)) - 1} rows")


if __name__ == "__main__":
    main()

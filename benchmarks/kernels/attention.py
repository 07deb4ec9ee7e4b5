"""How fast are torch's kernels of attention? Times `scaled_dot_product_attention` by backend and mask.

    python -m benchmarks.kernels.attention OUT.csv SECONDS [lengths PART PARTS]

`lengths` times cuDNN, and what torch chooses for one token with a cache, for more lengths of sequences, also
such as fill no tile; of these cases, one of PARTS in turn. Every case is timed as launches back to back in
one CUDA graph of at most 4 ms, with rests. Sets of keys and values of decode rotate, so that they exceed L2
twice. Rows have the columns of published tables of attention, the mask, and the kernels of a trace. A backend
that refuses a case is left out. It ends after SECONDS.
"""

import csv
import itertools
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from prunecast.validation.measure.rotation import rotating_sets

BACKENDS = {
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}
GRAPH_S, MOST_LAUNCHES, REPLAYS, REST_S = 4e-3, 60, 5, 0.01
MOST_SETS, MOST_BYTES = 48, 6e9
COLUMNS = (
    *("kind", "kernel_source", "mask", "batch_size", "isl", "step", "num_heads", "num_key_value_heads"),
    *("head_dim", "window_size", "sets", "seconds", "names"),
)


class Case(NamedTuple):
    """Sizes of one call."""

    kind: str
    mask: str
    batch: int
    queries: int
    cached: int
    heads: int
    key_heads: int
    width: int

    @property
    def keys(self) -> int:
        """Keys of each sequence."""
        return self.queries + self.cached


def cases() -> Iterator[Case]:
    """Encoders, prefill and decode of small to large sizes."""
    sizes = ((1, 128), (8, 128), (32, 128), (8, 197), (32, 197), (4, 512), (16, 512), (2, 2048), (8, 2048))
    for batch, tokens in sizes:
        for heads, width in ((12, 64), (16, 64), (16, 80), (32, 128)):
            for mask in ("none", "tensor") if width != 80 else ("none",):
                if batch * tokens * heads <= 2**19:
                    yield Case("encoder", mask, batch, tokens, 0, heads, heads, width)
    for batch, tokens in ((1, 128), (1, 512), (4, 512), (1, 2048), (4, 2048), (1, 8192)):
        for heads, key_heads, width in ((32, 32, 128), (12, 12, 64), (32, 8, 128)):
            yield Case("context", "causal", batch, tokens, 0, heads, key_heads, width)
    for batch, cached in ((1, 1024), (16, 1024), (4, 2047), (64, 512), (1, 16383), (16, 8191)):
        for heads, key_heads, width in ((32, 32, 128), (32, 8, 128), (16, 16, 64)):
            yield Case("generation", "none", batch, 1, cached, heads, key_heads, width)


def cases_of_lengths() -> Iterator[tuple[Case, str]]:
    """Yield sequences of 100 to 4096 tokens and one token with a cache, each with a backend or `any`."""
    encoders = ((100, 16), (128, 8), (197, 4), (256, 4), (384, 8), (512, 2), (577, 4), (768, 4), (1000, 2))
    encoders += ((1024, 4), (1500, 1), (1500, 4), (2048, 1), (3000, 1), (4096, 1), (256, 32), (577, 16))
    for tokens, batch in encoders:
        for heads, width in ((12, 64), (20, 64), (16, 128)):
            for mask in ("none", "tensor"):
                yield Case("encoder", mask, batch, tokens, 0, heads, heads, width), "cudnn"
    for tokens, batch in ((512, 8), (1500, 4), (256, 16)):
        yield Case("encoder", "biases", batch, tokens, 0, 16, 16, 64), "cudnn"
    prompts = (
        (200, 8),
        (256, 4),
        (1000, 1),
        (1024, 2),
        (1500, 2),
        (2048, 1),
        (2048, 2),
        (3000, 1),
        (4096, 1),
    )
    for tokens, batch in prompts:
        for heads, key_heads, width in ((32, 32, 128), (28, 4, 128), (16, 8, 128), (16, 16, 64)):
            yield Case("context", "causal", batch, tokens, 0, heads, key_heads, width), "cudnn"
    for batch, cached in (
        (1, 143),
        (4, 143),
        (16, 143),
        (1, 511),
        (16, 511),
        (64, 143),
        (1, 2047),
        (16, 2047),
    ):
        for heads, key_heads in ((32, 32), (32, 8)):
            for mask in ("none", "tensor"):
                yield Case("generation", mask, batch, 1, cached, heads, key_heads, 128), "any"


def operands(case: Case) -> tuple[Any, ...]:
    """Random queries, keys and values, and the mask."""

    def random(heads: int, tokens: int) -> Any:
        shape = (case.batch, tokens, heads, case.width)
        return torch.randn(shape, dtype=torch.bfloat16, device="cuda").transpose(1, 2)

    mask = None
    if case.mask in ("tensor", "biases"):
        heads = 1 if case.mask == "tensor" else case.heads
        mask = torch.zeros(case.batch, heads, case.queries, case.keys, dtype=torch.bfloat16, device="cuda")
    return (
        random(case.heads, case.queries),
        random(case.key_heads, case.keys),
        random(case.key_heads, case.keys),
        mask,
    )


def call_of(case: Case, sets: list[tuple[Any, ...]]) -> Callable[[int], Any]:
    """The call for a set of operands."""

    def call(number: int) -> Any:
        q, k, v, mask = sets[number % len(sets)]
        grouped = case.heads != case.key_heads
        return scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=case.mask == "causal", enable_gqa=grouped
        )

    return call


def seconds_of(call: Callable[[int], Any], first_s: float) -> float:
    """Median seconds of a call in a graph."""
    launches = max(2, min(MOST_LAUNCHES, int(GRAPH_S / first_s)))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for number in range(launches):
            call(number)
    graph.replay()
    times = []
    for _ in range(REPLAYS):
        time.sleep(REST_S)
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(200_000)
        start.record()
        graph.replay()
        stop.record()
        torch.cuda.synchronize()
        times.append(1e-3 * start.elapsed_time(stop) / launches)
    return statistics.median(times)


def first_seconds(call: Callable[[int], Any]) -> float:
    """Rough seconds of a call, from a few calls without a graph."""
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    call(0)
    start.record()
    for number in range(3):
        call(number)
    stop.record()
    torch.cuda.synchronize()
    return max(1e-3 * start.elapsed_time(stop) / 3, 2e-6)


def names_of(call: Callable[[int], Any]) -> str:
    """Kernels of a call and their microseconds."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as trace:
        call(0)
        torch.cuda.synchronize()
    found = ((event.key[:60], event.device_time_total) for event in trace.key_averages())
    return " | ".join(f"{name} {us:.1f}" for name, us in found if us)


def selected(arguments: list[str]) -> list[tuple[Case, str]]:
    """Return the cases and backends of the command line, those of lengths in a random order."""
    if not arguments:
        return list(itertools.product(cases(), BACKENDS))
    part, parts = int(arguments[1]), int(arguments[2])
    found = list(cases_of_lengths())
    random.Random(0).shuffle(found)
    return found[part::parts]


def main() -> None:
    out = Path(sys.argv[1])
    begin = time.time()
    with out.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(COLUMNS)
        for number, (case, backend) in enumerate(selected(sys.argv[3:])):
            if time.time() - begin > float(sys.argv[2]):
                break
            if backend == "math" and case.batch * case.heads * case.queries * case.keys > 2**29:
                continue
            q, *_ = first = operands(case)
            size = 2.0 * (q.numel() + 2 * first[1].numel())
            sets = 1
            if case.kind == "generation":
                sets = rotating_sets(size, most=min(MOST_SETS, int(MOST_BYTES / size)))
            call = call_of(case, [first, *(operands(case) for _ in range(sets - 1))])
            try:
                with torch.no_grad(), sdpa_kernel(BACKENDS.get(backend, list(BACKENDS.values()))):
                    seconds = seconds_of(call, first_seconds(call))
                    names = names_of(call) if number % 3 == 0 or backend in ("math", "any") else ""
            except RuntimeError as error:
                print(case, backend, str(error).splitlines()[0][:100])
                torch.cuda.synchronize()
                continue
            sizes = case.batch, case.queries, case.cached, case.heads, case.key_heads, case.width
            rows.writerow([case.kind, backend, case.mask, *sizes, 0, sets, f"{seconds:.5g}", names])
            file.flush()
    print(out.read_text()[-1500:], time.time() - begin)


if __name__ == "__main__":
    main()

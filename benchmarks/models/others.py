"""What a transformer runs outside of products, by torch: attention, sum and norm, transposes.

The project has no kernels for these; a model's time counts them by their traffic and arithmetic. Torch is one
way to run them, no bound: its sum and norm are two launches where one is counted. One set of arrays stays in
the L2, as is counted.
"""

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.on_gpu.timing import Contestant, take_turns

__all__ = ["measured_others"]

LAUNCHES = 50
GPU_DEVICE = "cuda"


def measured_others(stream: Any, size: dict[str, int], turns: int) -> dict[str, float]:
    """Seconds of one operation of each kind.

    Parameters
    ----------
    size : `batch`, `sequence`, `hidden` and `heads` of the transformer, `transposed` rows of a tensor
    """
    runs = {
        "attention": _attention(size),
        "normalise": _sum_and_norm(size),
        "transpose": _transpose(size),
    }
    contestants = [_contestant(stream, name, run) for name, run in runs.items()]
    return {name: sample.median for name, sample in take_turns(stream, contestants, turns).items()}


def _random(*shape: int) -> Any:
    return torch.randn(shape, dtype=torch.float16, device=GPU_DEVICE)


def _attention(size: dict[str, int]) -> Callable[[], object]:
    """Queries, keys and values as products leave them: (batch, sequence, heads, width)."""
    shape = (size["batch"], size["sequence"], size["heads"], size["hidden"] // size["heads"])
    query, key, value = (_random(*shape).transpose(1, 2) for _ in range(3))
    return lambda: torch.nn.functional.scaled_dot_product_attention(query, key, value)


def _sum_and_norm(size: dict[str, int]) -> Callable[[], object]:
    tokens, hidden = size["batch"] * size["sequence"], size["hidden"]
    branch, stream, both = (_random(tokens, hidden) for _ in range(3))
    weight, bias = _random(hidden), _random(hidden)

    def run() -> object:
        torch.add(branch, stream, out=both)
        return torch.nn.functional.layer_norm(both, (hidden,), weight, bias)

    return run


def _transpose(size: dict[str, int]) -> Callable[[], object]:
    tokens, rows = size["batch"] * size["sequence"], size["transposed"]
    features, turned = _random(rows, tokens), _random(tokens, rows)
    return lambda: turned.copy_(features.t())


def _contestant(stream: Any, name: str, run: Callable[[], object]) -> Contestant:
    """A graph of `LAUNCHES` operations, captured by torch itself, replayed on the benchmark's stream."""
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        for _ in range(LAUNCHES):
            run()
    torch.cuda.synchronize()
    external = torch.cuda.ExternalStream(stream.ptr)

    def replay() -> None:
        with torch.cuda.stream(external):
            graph.replay()

    return Contestant(name, replay, LAUNCHES, holds=(graph, run))

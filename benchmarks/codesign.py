"""Pruning to a time against the natural alternatives at the same predicted time, and how long it takes.

python -m benchmarks.codesign [bert-base | FILE] [--engine model|simulator] [--tokens N] [--batch N]
"""

import argparse
import time

from prunecast.choice import fastest_plan
from prunecast.codesign.search import Targets
from prunecast.codesign.search.model_search import ModelSearch
from prunecast.codesign.search.target import prune_to_targets
from prunecast.hardware import load_gpu
from prunecast.patterns import parse_pattern
from prunecast.workload import Engine
from prunecast.workload.graph import Pass
from prunecast.workload.layers import is_standard
from prunecast.workload.load import load_workload
from prunecast.workload.workload import Workload

ALTERNATIVES = (
    ("uniform tile-wise", "tile-wise:128", "stspmm", 0.5),
    ("uniform tile-wise", "tile-wise:128", "stspmm", 0.75),
    ("uniform tile-wise", "tile-wise:128", "stspmm", 0.9),
    ("uniform 2:4", "2:4", "2:4", None),
    ("uniform blocks", "block:64x64", "block-sparse", 0.5),
    ("uniform blocks", "block:64x64", "block-sparse", 0.75),
    ("uniform blocks", "block:64x64", "block-sparse", 0.9),
    ("magnitude per layer, csr", "unstructured", "csr", 0.9),
    ("magnitude per layer, csr", "unstructured", "csr", 0.95),
)


class Alternative:
    """Every layer pruned alike: its time and what it retains."""

    def __init__(self, workload: Workload, engine: Engine, pattern: str, kernel: str, sparsity: float | None):
        rule = parse_pattern(pattern)
        self.seconds: dict[str, float] = {}
        kept = total = 0.0
        for name, layer in workload.layers.items():
            importance = workload.importance(name)
            mask = rule.prune({name: importance}, sparsity)[name]
            plan = fastest_plan(kernel, rule.map(mask), n=layer.n, dtype="fp16", gpu=engine.gpu)
            self.seconds[name] = engine.run(plan).seconds
            kept += float(importance.sum(where=mask, dtype=float))
            total += float(importance.sum(dtype=float))
        self.retained = kept / total


def read_layers(source: str, tokens: int, batch: int) -> Workload:
    """Layers of a standard model or of a file."""
    if is_standard(source):
        return load_workload(source, [Pass(batch, tokens)])
    return load_workload(source, [Pass(1, tokens)], ignore=["re:embed", "re:positions"])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", nargs="?", default="bert-base")
    parser.add_argument("--gpu", default="h200-sxm")
    parser.add_argument("--engine", default="model")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--batch", type=int, default=8)
    options = parser.parse_args()
    gpu = load_gpu(options.gpu)
    workload = read_layers(options.source, options.tokens, options.batch)
    engine = Engine(name=options.engine, gpu=gpu)
    begin = time.perf_counter()
    search = ModelSearch(workload=workload, engine=engine, dtype="fp16")
    search.prepare()
    result = prune_to_targets(search, Targets(latency_share=0.6))
    took = time.perf_counter() - begin
    print(
        f"{options.source}, {gpu.name}, {options.engine}: pruned to 60 % of dense in {took:.1f} s: ", end=""
    )
    print(f"{result.seconds / result.dense_seconds:.1%}, keeps {result.retained_importance:.1%}")
    print(f"{'alternative':28}{'pattern':16}{'sparsity':>9}{'time us':>10}{'keeps':>8}{'ours keeps':>12}")
    for name, pattern, kernel, sparsity in ALTERNATIVES:
        other = Alternative(workload, engine, pattern, kernel, sparsity)
        seconds = search.total(other.seconds, frozenset(workload.layers))
        ours = prune_to_targets(search, Targets(latency_s=seconds))
        asked = "own" if sparsity is None else f"{sparsity:.0%}"
        print(
            f"{name:28}{pattern:16}{asked:>9}{seconds * 1e6:10.1f}{other.retained:8.1%}"
            f"{ours.retained_importance:12.1%}"
        )


if __name__ == "__main__":
    main()

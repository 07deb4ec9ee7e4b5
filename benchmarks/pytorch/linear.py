"""Whether TileSparseLinear gives what nn.Linear with the same zeros gives, on a GPU, and how long both take,
in captured graphs and called one by one (us; tensors that come round stay in L2).

    python -m benchmarks.pytorch.linear --out DIR [--gpu h200-sxm]

Any number of tokens, both layouts, both formats, chains of two layers and plans that make room for others.
Writes DIR/torch-linear.json; exits 1 where a product is wrong.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from prunecast.patterns import parse_pattern
from prunecast.torch import TileSparseLinear

TOKENS = (1, 3, 8, 20, 33, 64, 65, 100, 197, 200, 1000, 1001, 4096, 6304)
SHAPES = ((3072, 768), (768, 3072), (4096, 4096))
SPARSITY, PATTERN, TURNS, CALLS = 0.75, "tile-wise:128", 20, 20
MOST_ERROR = 2e-2
"""Of the largest output: fp16 and bf16 outputs are rounded to 2^-11 and 2^-8 of theirs."""


def pruned(m: int, k: int, dtype: torch.dtype) -> torch.nn.Linear:
    """A linear layer whose columns outside the pattern are zeros."""
    linear = torch.nn.Linear(k, m).to("cuda", dtype)
    weights = linear.weight.detach().float().cpu().numpy()
    mask = parse_pattern(PATTERN).masks({"layer": np.abs(weights)}, SPARSITY)["layer"]
    linear.weight.data *= torch.from_numpy(mask).to(linear.weight)
    return linear


def error_of(sparse: TileSparseLinear, dense: torch.nn.Linear, tokens: int, layout: str) -> float:
    """Largest difference over the largest output of the product in fp32."""
    x = torch.randn(tokens, dense.in_features, device="cuda", dtype=dense.weight.dtype)
    bias = dense.bias.float()
    wanted = torch.nn.functional.linear(x.float(), dense.weight.float(), bias)
    found = sparse(x) if layout == "tokens_first" else sparse(x.t().contiguous()).t()
    return float((found.float() - wanted).abs().max() / wanted.abs().max())


def eager_us(call: Callable[[], object]) -> float:
    """Of a call as torch makes it, the host's time in it; warm."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(CALLS):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / CALLS * 1e6


def graph_us(call: Callable[[], object]) -> float:
    """Of a call in a captured graph of `CALLS`, median of `TURNS` replays; warm."""
    call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call()
    times = []
    for _ in range(TURNS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(1e3 * begin.elapsed_time(end) / CALLS)
    return float(sorted(times)[len(times) // 2])


def rows_of(m: int, k: int, dtype: torch.dtype, gpu: str) -> list[dict[str, Any]]:
    """One row for each layout and number of tokens."""
    found, dense = [], pruned(m, k, dtype)
    for layout in ("tokens_first", "features_first"):
        sparse = TileSparseLinear.from_linear(
            dense, pattern=PATTERN, gpu=gpu, max_tokens=8192, layout=layout, max_plans=4
        ).eval()
        for tokens in TOKENS:
            row: dict[str, Any] = {"m": m, "k": k, "dtype": str(dtype), "layout": layout, "tokens": tokens}
            row["error"] = error_of(sparse, dense, tokens, layout)
            row["plans"] = len(sparse._operators)
            if tokens >= 1000:
                x = torch.randn(tokens, k, device="cuda", dtype=dtype)
                given = x if layout == "tokens_first" else x.t().contiguous()
                calls = {"sparse": partial(sparse, given), "dense": partial(dense, x)}
                for name, call in calls.items():
                    row[f"{name}_us"], row[f"{name}_eager_us"] = graph_us(call), eager_us(call)
            found.append(row)
    return found


def chain_error(gpu: str, tokens: int) -> float:
    """Of two layers with GELU between, whose middle is read where it lies."""
    up, down = pruned(3072, 768, torch.float16), pruned(768, 3072, torch.float16)
    layers = [
        TileSparseLinear.from_linear(one, pattern=PATTERN, gpu=gpu, max_tokens=8192).eval()
        for one in (up, down)
    ]
    x = torch.randn(2, tokens, 768, device="cuda", dtype=torch.float16)
    wanted = down(torch.nn.functional.gelu(up(x))).float()
    found = layers[1](torch.nn.functional.gelu(layers[0](x))).float()
    return float((found - wanted).abs().max() / wanted.abs().max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--gpu", default="h200-sxm")
    given = parser.parse_args()
    torch.manual_seed(0)
    with torch.no_grad():
        rows = [
            row
            for m, k in SHAPES
            for dtype in (torch.float16, torch.bfloat16)
            for row in rows_of(m, k, dtype, given.gpu)
        ]
        chains = {tokens: chain_error(given.gpu, tokens) for tokens in (1, 197, 1000)}
    record = {"torch": torch.__version__, "gpu": torch.cuda.get_device_name(), "rows": rows, "chains": chains}
    (given.out / "torch-linear.json").write_text(json.dumps(record, indent=1))
    for row in rows:
        if "sparse_us" in row:
            shape = f"{row['m']}x{row['k']}x{row['tokens']} {row['dtype'][6:]} {row['layout']}"
            times = [row[f"{one}_us"] for one in ("dense", "sparse", "dense_eager", "sparse_eager")]
            print(f"{shape:44} " + "{:8.1f} dense {:8.1f} sparse, eager {:8.1f} {:8.1f}".format(*times))
    worst = max([row["error"] for row in rows] + list(chains.values()))
    print(f"{len(rows)} products and {len(chains)} chains, worst error {worst:.4f} of the largest output")
    print(f"at most {max(row['plans'] for row in rows)} plans kept")
    sys.exit(worst > MOST_ERROR)


if __name__ == "__main__":
    main()

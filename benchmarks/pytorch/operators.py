"""Is `prunecast::linear` right on a GPU, and how fast are layers alone? For `benchmarks.pytorch.models`."""

import json
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.pytorch.timing import captured, error, times_us
from prunecast.hardware import load_gpu
from prunecast.patterns import TileMap, parse_pattern
from prunecast.torch import sparsify
from prunecast.torch.forms import layouts_for
from prunecast.torch.ops import columns_of
from prunecast.torch.packed import PackedProduct

TURNS = 20
TOKENS = (1, 3, 8, 57, 64, 65, 200, 1023, 2048, 2049)
LAYERS = (
    ("qkv", 12288, 4096),
    ("o", 4096, 4096),
    ("gate-up", 22016, 4096),
    ("down", 4096, 11008),
    ("bert-qkv", 2304, 768),
    ("bert-up", 3072, 768),
    ("bert-down", 768, 3072),
)
MATRICES = (("tile-wise:128", 1000, 776), ("tile-wise:256", 2304, 768), ("tile-wise:64", 512, 1024))
MOST_ERROR = {torch.float16: 2e-3, torch.bfloat16: 1.2e-2}
"""Of the largest output: a rounding of it, and what sums in another order differ by."""


def pruned(pattern: str, m: int, k: int, *, scattered: bool) -> tuple[torch.Tensor, TileMap]:
    """Weights and their tiles, whose rows may lie anywhere."""
    weight, found = torch.randn(m, k), parse_pattern(pattern)
    tiles = found.map(found.prune({"w": weight.abs().numpy()}, 0.7)["w"])
    assert isinstance(tiles, TileMap)
    if scattered:
        rows = np.random.default_rng(0).permutation(m).astype(np.int32)[: tiles.row_index.size]
        tiles = TileMap(
            m=m,
            k=k,
            row_start=tiles.row_start,
            row_index=rows,
            column_start=tiles.column_start,
            column_index=tiles.column_index,
            pattern=pattern,
        )
    return weight * torch.from_numpy(tiles.mask()), tiles


def check_operators(gpu: str) -> list[str]:
    """Every kernel on odd numbers of tokens, both dtypes, bias, activation, scattered rows, against fp32."""
    wrong: list[str] = []
    checked = 0
    for pattern, m, k in MATRICES:
        for dtype in MOST_ERROR:
            for scattered in (False, True):
                weight, tiles = pruned(pattern, m, k, scattered=scattered)
                found = check_layer(weight.cuda().to(dtype), tiles, gpu)
                wrong += [f"{pattern} {dtype} scattered={scattered} {each}" for each in found]
                checked += 2 * len(TOKENS)
    torch.cuda.synchronize()
    print(f"operators: {len(wrong)} of {checked} wrong", *wrong[:10], sep="\n  ", flush=True)
    return wrong


def check_layer(weight: torch.Tensor, tiles: TileMap, gpu: str) -> list[str]:
    """The calls of one layer whose y is wrong."""
    m, k = weight.shape
    dtype, spec = weight.dtype, load_gpu(gpu)
    bias = torch.randn(m, device="cuda").to(dtype)
    layouts = layouts_for(tiles, "fp16" if dtype == torch.float16 else "bf16", spec, 4096, few_tokens=True)
    made, wrong = PackedProduct(weight, tiles, bias, gpu=spec, max_tokens=4096, layouts=layouts), []
    for tokens in TOKENS:
        x = torch.randn(tokens, k, device="cuda").to(dtype)
        sums = nn.functional.linear(x.float(), weight.float(), bias.float())
        for activation in ("none", "gelu"):
            y = raw(made, columns_of(x), tokens, activation)
            wanted = nn.functional.gelu(sums) if activation == "gelu" else sums
            off = float((y.float() - wanted).abs().max() / wanted.abs().max())
            if not off < MOST_ERROR[dtype] or not y.is_contiguous():
                wrong.append(f"{tokens} tokens, {activation}: {off:.3g}")
    return wrong


def raw(product: PackedProduct, x_t: torch.Tensor, tokens: int, activation: str = "none") -> torch.Tensor:
    """The product without the transpose of x."""
    layer = (tokens, product.rows, activation, product.gpu.name, product.plan)
    given = (x_t, product.images, product.tiles, product.fp32_bias, None, *layer)
    found: torch.Tensor = torch.ops.prunecast.linear.default(*given)
    return found


def time_products(gpu: str, rounds: int) -> list[dict[str, Any]]:
    """Layers alone, in graphs of 20 calls; weights of small layers stay in L2."""
    rows = []
    for name, m, k in LAYERS:
        bias = name.startswith("bert")
        dense, sparse = (nn.Sequential(nn.Linear(k, m, bias=bias)).half().cuda() for _ in range(2))
        sparsify(sparse, "tile-wise:128", gpu=gpu, max_tokens=4096, sparsity=0.75, quiet=True)
        dense.load_state_dict(sparse.state_dict())
        for tokens in (1, 16, 2048, 4096):
            rows.append({"layer": name, "tokens": tokens, **_times(dense, sparse, tokens, k, rounds)})
            print(json.dumps(rows[-1]), flush=True)
    return rows


@torch.no_grad()
def _times(dense: nn.Sequential, sparse: nn.Sequential, tokens: int, k: int, rounds: int) -> dict[str, float]:
    x = torch.randn(tokens, k, device="cuda").half()
    product, x_t = sparse[0].product, columns_of(x)
    calls = {
        "dense": lambda: dense(x),
        "sparse": lambda: sparse(x),
        "alone": lambda: raw(product, x_t, tokens),
    }
    graphs = {
        name: captured(lambda call=call: [call() for _ in range(TURNS)][-1]) for name, call in calls.items()
    }
    found = {name: us / TURNS for name, us in times_us(graphs, rounds).items()}
    return {**found, "error": error(sparse(x), dense(x))}

"""Is `prunecast::linear` right on a GPU? For `benchmarks.pytorch.models`."""

import numpy as np
import torch
from torch import nn

from prunecast.hardware import load_gpu
from prunecast.patterns import TileMap, parse_pattern
from prunecast.torch.epilogue import Epilogue, activated
from prunecast.torch.layer_plans import layouts_for
from prunecast.torch.ops import columns_of
from prunecast.torch.packed import PackedProduct

TOKENS = (1, 3, 8, 57, 64, 65, 200, 1023, 2048, 2049)
MATRICES = (
    ("tile-wise:128", 1000, 776),
    ("tile-wise:256", 2304, 768),
    ("tile-wise:64", 512, 1024),
    ("tile-wise:128", 2048, 512),
)
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
                checked += len(epilogues_of(tiles)) * len(TOKENS)
    torch.cuda.synchronize()
    print(f"operators: {len(wrong)} of {checked} wrong", *wrong[:10], sep="\n  ", flush=True)
    return wrong


def check_layer(weight: torch.Tensor, tiles: TileMap, gpu: str) -> list[str]:
    """The calls of one layer whose y is wrong."""
    m, dtype, spec = len(weight), weight.dtype, load_gpu(gpu)
    bias = torch.randn(m, device="cuda").to(dtype)
    layouts = layouts_for(tiles, "fp16" if dtype == torch.float16 else "bf16", spec, 4096, few_tokens=True)
    options = {"gpu": spec, "max_tokens": 4096, "layouts": layouts}
    products = [PackedProduct(weight, tiles, bias, epilogue=each, **options) for each in epilogues_of(tiles)]
    return [
        f"{tokens} tokens, {made.epilogue}: {off:.3g}"
        for tokens in TOKENS
        for made in products
        for off in [worst_error(made, weight, bias, tokens)]
        if not off < MOST_ERROR[dtype]
    ]


def epilogues_of(tiles: TileMap) -> list[Epilogue]:
    """Those that the layer can have: gated units need whole groups of 16 rows."""
    plain = [Epilogue(), Epilogue("gelu"), Epilogue("gelu", features_first=True), Epilogue("silu")]
    may_gate = not np.any(tiles.row_start % 16) and not np.any(np.diff(tiles.row_index.reshape(-1, 16)) != 1)
    return [*plain, *([Epilogue("silu", glu=True, features_first=True)] if may_gate else [])]


def worst_error(made: PackedProduct, weight: torch.Tensor, bias: torch.Tensor, tokens: int) -> float:
    """Largest error over the largest element of y."""
    x = torch.randn(tokens, weight.shape[1], device="cuda").to(weight.dtype)
    sums = nn.functional.linear(x.float(), weight.float(), bias.float())
    wanted = activated(sums, made.epilogue)
    y, direct = raw(made, columns_of(x), tokens), made(x)
    off = max(float((each.float() - wanted).abs().max() / wanted.abs().max()) for each in (y, direct))
    return off if made.epilogue.features_first or y.is_contiguous() else float("inf")


def raw(product: PackedProduct, x_t: torch.Tensor, tokens: int) -> torch.Tensor:
    """The product without the transpose of x."""
    layer = (tokens, product.rows, *product.epilogue, product.gpu.name, product.plan)
    given = (x_t, product.images, product.tiles, product.fp32_bias, *layer)
    found: torch.Tensor = torch.ops.prunecast.linear.default(*given)
    return found[:, :tokens].t() if product.epilogue.features_first else found

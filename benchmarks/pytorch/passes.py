"""What do compiled passes between products, and residual sums in sparse products, need on a GPU?

    python -m benchmarks.pytorch.passes OUT.csv SECONDS [norms|activations|products]

Norms, their statistics alone, activations and gated units as torch.compile writes them for fixed sizes, and
products of the tile
kernel and of the 2:4 kernel, plain, with the sum in their epilogue, and with the sum as a kernel after them.
Every case is a chain of launches in one CUDA graph without programmatic dependent launch. In chains of norms
each call reads the sum that the call before it wrote; products rotate among sets of operands of more than
L2. Medians of replays with rests. It ends after SECONDS.
"""

import csv
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.nn import functional

from benchmarks.kernels.attention import first_seconds, seconds_of
from prunecast.hardware import load_gpu
from prunecast.patterns import dense_tile_map, parse_pattern
from prunecast.torch.epilogue import PLAIN
from prunecast.torch.layer_plans import layouts_for
from prunecast.torch.packed import PackedProduct
from prunecast.validation.measure.rotation import rotating_sets

GPU = "h200-sxm"
TOKENS = ((4096, 768), (4096, 1024), (4096, 1152), (8192, 1536), (4096, 2048), (4096, 3072), (2048, 4096))
"""Tokens and features of norms."""
WIDE = ((4096, 3072), (8192, 3072), (2048, 8192), (4096, 6144))
"""Tokens and features of activations."""
PRODUCTS = (
    ("2:4", 3584, 18944, 2048, 0.5),
    ("2:4", 3584, 3584, 2048, 0.5),
    ("2:4", 37888, 3584, 2048, 0.5),
    ("2:4", 4096, 11008, 2048, 0.5),
    ("2:4", 4096, 4096, 2048, 0.5),
    ("2:4", 2048, 6144, 4096, 0.5),
    ("atp:256", 3072, 768, 4096, 0.75),
    ("atp:256", 768, 3072, 4096, 0.75),
    ("atp:256", 3584, 18944, 2048, 0.85),
    ("tile-wise:128", 3072, 768, 4096, 0.75),
    ("tile-wise:128", 768, 3072, 4096, 0.75),
    ("tile-wise:128", 4096, 11008, 2048, 0.75),
    ("tile-wise:128", 1280, 5120, 6000, 0.75),
    ("tile-wise:128", 1280, 1280, 6000, 0.75),
    ("tile-wise:128", 2048, 6144, 4096, 0.75),
)
"""Pattern, M, K, tokens, sparsity."""
Call = Callable[[int], Any]


class Timed(NamedTuple):
    """A case and its chain of calls."""

    kind: str
    name: str
    m: int
    k: int
    tokens: int
    sparsity: float
    call: Call


def random(*shape: int) -> torch.Tensor:
    """Return random fp16 numbers on the GPU."""
    return torch.randn(shape, device="cuda", dtype=torch.float16)


def fixed(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function compiled for one size, also where the same code was compiled for others."""
    torch._dynamo.reset()
    return torch.compile(function, dynamic=False)


def norms() -> Iterator[Timed]:
    """Yield norms of one tensor and of a sum, in chains, and statistics of a LayerNorm."""
    for tokens, features in TOKENS:
        weight, bias = random(features), random(features)

        def layer_norm(x: torch.Tensor, weight: Any = weight, bias: Any = bias) -> torch.Tensor:
            return functional.layer_norm(x, x.shape[-1:], weight, bias)

        def rms_norm(x: torch.Tensor, weight: Any = weight) -> torch.Tensor:
            wide = x.float()
            return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)

        for name, norm in (("layer norm", layer_norm), ("rms norm", rms_norm)):
            yield Timed("norm", name, 0, features, tokens, 0.0, chain(fixed(norm), tokens, features))

            def of_sum(
                x: torch.Tensor, y: torch.Tensor, norm: Any = norm
            ) -> tuple[torch.Tensor, torch.Tensor]:
                total = x + 0.125 * y
                return total, norm(total)

            call = chain_of_sums(fixed(of_sum), tokens, features)
            yield Timed("norm", f"{name} of a sum", 0, features, tokens, 0.0, call)
        xs = [random(tokens, features) for _ in range(2)]

        def statistics(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            variance, mean = torch.var_mean(x.float(), -1, correction=0, keepdim=True)
            return mean, torch.rsqrt(variance + 1e-5)

        call = rotating(fixed(statistics), xs)
        yield Timed("norm", "statistics of a layer norm", 0, features, tokens, 0.0, call)


def rotating(function: Callable[..., Any], xs: list[torch.Tensor]) -> Call:
    """Return calls with one of several tensors in turn."""
    return lambda number: function(xs[number % len(xs)])


def chain(function: Callable[..., Any], tokens: int, features: int) -> Call:
    """Return calls of which each reads what the one before it wrote."""
    state = [random(tokens, features)]

    def call(number: int) -> torch.Tensor:
        state[0] = function(state[0])
        return state[0]

    return call


def chain_of_sums(function: Callable[..., Any], tokens: int, features: int) -> Call:
    """Return calls that add one of eight branches to the sum before."""
    state, branches = [random(tokens, features)], [random(tokens, features) for _ in range(8)]

    def call(number: int) -> torch.Tensor:
        state[0], normed = function(state[0], branches[number % len(branches)])
        return normed

    return call


def activations() -> Iterator[Timed]:
    """Yield activations of one tensor, and the gated unit of two halves of one."""

    def gated(x: torch.Tensor) -> torch.Tensor:
        gate, up = x.chunk(2, -1)
        return functional.silu(gate) * up

    for tokens, features in WIDE:
        for name, function in (
            ("gelu", functional.gelu),
            ("relu", functional.relu),
            ("silu times up", gated),
        ):
            width = 2 * features if function is gated else features
            call = rotating(fixed(function), [random(tokens, width) for _ in range(2)])
            yield Timed("activation", name, 0, features, tokens, 0.0, call)


def products() -> Iterator[Timed]:
    """Yield sparse products: plain, adding to a residual in their epilogue, and with a kernel that adds."""
    gpu = load_gpu(GPU)
    for pattern, m, k, tokens, sparsity in PRODUCTS:
        weight = random(m, k)
        is_two_of_four = pattern == "2:4"
        if is_two_of_four:
            groups = weight.view(m, k // 4, 4)
            groups.scatter_(2, groups.abs().topk(2, dim=2, largest=False).indices, 0.0)
            tiles = replace(dense_tile_map(m, k, m), pattern=pattern)
        else:
            found = parse_pattern(pattern)
            tiles = found.map(found.prune({"w": weight.float().abs().cpu().numpy()}, sparsity)["w"])
            weight *= torch.from_numpy(tiles.mask()).cuda()
        layouts = layouts_for(tiles, "fp16", gpu, tokens, few_tokens=False, two_of_four=is_two_of_four)
        product = PackedProduct(weight, tiles, None, gpu=gpu, max_tokens=tokens, layouts=layouts)
        sets = rotating_sets(2.0 * (k * tokens + m * tokens))
        xs, ys = [random(k, tokens) for _ in range(sets)], [random(tokens, m) for _ in range(sets)]
        given = (product.images, product.tiles, None, tokens, m)
        last = (gpu.name, product.plan)

        def plain(number: int, given: Any = given, last: Any = last, xs: Any = xs) -> torch.Tensor:
            return torch.ops.prunecast.linear.default(xs[number % len(xs)], *given, *PLAIN, *last)

        def adding(number: int, given: Any = given, last: Any = last, xs: Any = xs, ys: Any = ys) -> None:
            place = number % len(xs)
            torch.ops.prunecast.linear_add_.default(ys[place], xs[place], *given, *last)

        def apart(number: int, plain: Call = plain, ys: Any = ys) -> None:
            ys[number % len(ys)].add_(plain(number))

        for name, call in (("plain", plain), ("adding", adding), ("sum apart", apart)):
            yield Timed(name, pattern, m, k, tokens, sparsity, call)
        wanted = xs[0].t().float() @ weight.t().float()
        off = float((plain(0).float() - wanted).norm() / wanted.norm())
        print(f"{pattern} {m} x {k} x {tokens}: error {off:.2e}", flush=True)


def main() -> None:
    begin = time.time()
    with Path(sys.argv[1]).open("w", newline="") as file, torch.no_grad():
        rows = csv.writer(file)
        rows.writerow((*Timed._fields[:-1], "seconds"))
        makers = {"norms": norms, "activations": activations, "products": products}
        for make in [makers[name] for name in sys.argv[3:] or makers]:
            for case in make():
                if time.time() - begin > float(sys.argv[2]):
                    return
                for number in range(3):
                    case.call(number)
                seconds = seconds_of(case.call, first_seconds(case.call))
                rows.writerow((*case[:-1], f"{seconds:.5g}"))
                file.flush()


if __name__ == "__main__":
    main()

"""The time of a whole pass on the GPU, pruned and dense in turn: compiled, in CUDA graphs, overlapped.

Dense products that read the same are one, and the dense model has all its weights: what a careful user has.
"""

from __future__ import annotations

import fcntl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from study import Study
from torch import Tensor, nn

from prunecast.patterns import parse_pattern
from prunecast.patterns.tile_map import MaskArray
from prunecast.torch import sparsify
from prunecast.torch.find import find_layers
from prunecast.torch.recipe import Recipe
from prunecast.validation.torch_models.models import fuse_dense
from prunecast.validation.torch_models.timing import Forward, captured, error, times_us

ROUNDS = 40
ALGORITHMS = 12
"""Most that cuSPARSELt has for a product."""
FORMS = {"compiled": False, "overlapped": True}
"""How a pass runs -> whether launches overlap (programmatic dependent launch)."""


class TwoOfFour(nn.Module):
    """A linear layer of 2:4 weights by cuSPARSELt, as torch calls it."""

    def __init__(self, dense: nn.Linear) -> None:
        super().__init__()
        self.register_buffer("packed", torch._cslt_compress(dense.weight.detach()))
        self.register_buffer("bias", dense.bias.detach())
        self.rows = dense.out_features
        self.way = 0

    def forward(self, x: Tensor) -> Tensor:
        """Y (..., M) of x (..., K)."""
        return self.product(x.flatten(0, -2), self.way).unflatten(0, x.shape[:-1])

    def product(self, x: Tensor, way: int) -> Tensor:
        """Y (tokens, M) of x (tokens, K) by one of the library's algorithms."""
        return torch._cslt_sparse_mm(self.packed, x.t(), bias=self.bias, transpose_result=True, alg_id=way)

    def choose(self, tokens: int, columns: int) -> None:
        """Take the fastest algorithm for so many tokens, of those that run."""
        x, taken = torch.randn(tokens, columns, device="cuda").to(self.bias.dtype), {}
        for way in range(ALGORITHMS):
            try:
                taken[way] = times_us({"": lambda way=way: self.product(x, way)}, 5)[""]
            except RuntimeError:
                break
        self.way = min(taken, key=taken.__getitem__) if taken else 0


def half_model(study: Study, dense: Mapping[str, Tensor], kept: Mapping[str, MaskArray]) -> nn.Module:
    """The model in fp16 on the GPU with zeros where masks prune."""
    model = study.build("cuda")
    model.load_state_dict(dense)
    with torch.no_grad():
        for name, mask in kept.items():
            weight, keeps = model.get_parameter(name), torch.from_numpy(mask).to("cuda")
            weight.mul_(keeps.reshape(weight.shape))
    return model.half().eval().requires_grad_(False)


def make_sparse(
    model: nn.Module,
    kept: Mapping[str, MaskArray],
    patterns: Mapping[str, str],
    runtime: str,
    gpu: str,
    tokens: int,
) -> str:
    """Put sparse products in place; what was done."""
    if runtime == "2:4":
        layers, _ = find_layers(model)
        wanted = [layer for layer in layers if f"{layer.name}.weight" in patterns]
        for name, module in wanted:
            parent, _, own = name.rpartition(".")
            product = TwoOfFour(module)
            product.choose(tokens, module.in_features)
            setattr(model.get_submodule(parent), own, product)
        return f"{len(wanted)} layers in cuSPARSELt"
    modules = {name.removesuffix(".weight"): pattern for name, pattern in patterns.items()}
    tiles = {name: parse_pattern(pattern).map(kept[f"{name}.weight"]) for name, pattern in modules.items()}
    recipe = Recipe(next(iter(modules.values())), modules, dict.fromkeys(modules, 0.0), tiles)
    how = {"max_tokens": tokens, "few_tokens": False, "convolutions": True, "quiet": True}
    return str(sparsify(model, recipe, gpu=gpu, **how))


def forward_of(study: Study, model: nn.Module, form: str) -> Forward:
    """A pass as a CUDA graph."""
    torch._dynamo.reset()
    module, example = study.timed(model), study.example("cuda")
    with torch._inductor.config.patch({"triton.enable_pdl": FORMS[form]}):
        compiled = torch.compile(module)
        return captured(lambda: compiled(*example))


@torch.no_grad()
def measure(
    study: Study,
    dense: Mapping[str, Tensor],
    kept: Mapping[str, MaskArray],
    patterns: Mapping[str, str],
    *,
    runtime: str,
    gpu: str,
    lock: Path,
) -> dict[str, Any]:
    """Times of a pass in microseconds, and the share of the best dense form.

    Processes may compile beside each other: only one of them, which holds the file `lock`, times at once.
    """
    torch.backends.cudnn.benchmark = True
    zeros = half_model(study, dense, kept)
    wanted = study.timed(zeros)(*study.example("cuda"))
    patterns = {name: each for name, each in patterns.items() if not kept[name].all()}
    done = make_sparse(zeros, kept, patterns, runtime, gpu, study.tokens)
    forwards = {
        f"dense {form}": forward_of(study, fuse_dense(half_model(study, dense, {})), form) for form in FORMS
    }
    forwards |= {f"sparse {form}": forward_of(study, zeros, form) for form in FORMS}
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        us = times_us(forwards, ROUNDS)
    off = error(forwards["sparse overlapped"](), wanted)
    best = {kind: min(t for name, t in us.items() if name.startswith(kind)) for kind in ("dense", "sparse")}
    return {
        "us": {name: round(t, 2) for name, t in us.items()},
        "share": round(best["sparse"] / best["dense"], 4),
        "error": round(off, 6),
        "done": done,
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
    }

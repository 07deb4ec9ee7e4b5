"""The time of a whole pass on the GPU, pruned and dense in turn: compiled, in CUDA graphs, overlapped.

Dense products that read the same are one, and the dense model has all its weights: what a careful user has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from narrow import Group, narrow
from rows import turn
from study import Study
from torch import Tensor, nn

from prunecast.codesign.recipe import PrunedLayer, Recipe
from prunecast.patterns import TileMap, parse_pattern
from prunecast.patterns.tile_map import MaskArray
from prunecast.torch import fuse_dense, sparsify
from prunecast.validation.torch_models.timing import Forward, captured, error, times_us

ROUNDS = 40
FORMS = {"compiled": False, "overlapped": True}
"""How a pass runs -> whether launches overlap (programmatic dependent launch)."""


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
    model: nn.Module, kept: Mapping[str, MaskArray], patterns: Mapping[str, str], gpu: str, tokens: int
) -> str:
    """Put sparse products in place; what was done."""
    modules = {name.removesuffix(".weight"): pattern for name, pattern in patterns.items()}
    maps = {name: parse_pattern(pattern).map(kept[f"{name}.weight"]) for name, pattern in modules.items()}
    tiles = {name: each for name, each in maps.items() if isinstance(each, TileMap)}
    layers = tuple(PrunedLayer(layer=name, sparsity=0.0, pattern=each) for name, each in modules.items())
    recipe = Recipe(pattern=next(iter(modules.values())), layers=layers, tiles=tiles)
    how = {"max_tokens": tokens, "few_tokens": False, "convolutions": True, "only_gains": False}
    return str(sparsify(model, recipe, gpu=gpu, quiet=True, **how))


def _widened(each: Tensor) -> Tensor:
    return each.float() if each.is_floating_point() else each


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
    gpu: str,
    lock: Path,
    groups: Sequence[Group] = (),
    forms: Sequence[str] = (),
) -> dict[str, Any]:
    """Times of a pass in microseconds, and the share of the best dense form; how far outputs of the pruned
    model are from those in fp32, by sparse products and by torch's dense ones in fp16. Of `groups` the units
    that masks remove are not there at all. `forms` are those of the pass, all by default.

    Processes may compile and tune beside each other: only one of them times at once, and nobody tunes then.
    """
    forms = forms or list(FORMS)
    torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32 = True, False
    zeros, example = half_model(study, dense, kept), study.example("cuda")
    exact = study.timed(half_model(study, dense, kept).float())(*map(_widened, example))
    rounded = error(study.timed(zeros)(*example), exact)
    zeros, left = narrow(zeros, groups, kept)
    patterns = {name: each for name, each in patterns.items() if not left[name].all()}
    done = make_sparse(zeros, left, patterns, gpu, study.tokens) if patterns else "dense"
    forwards = {
        f"dense {form}": forward_of(study, fuse_dense(half_model(study, dense, {})), form) for form in forms
    }
    forwards |= {f"sparse {form}": forward_of(study, fuse_dense(zeros), form) for form in forms}
    with turn(lock, alone=True):
        us = times_us(forwards, ROUNDS)
    off = error(forwards[f"sparse {forms[-1]}"](), exact)
    best = {kind: min(t for name, t in us.items() if name.startswith(kind)) for kind in ("dense", "sparse")}
    return {
        "us": {name: round(t, 2) for name, t in us.items()},
        "share": round(best["sparse"] / best["dense"], 4),
        "error": round(off, 6),
        "dense_error": round(rounded, 6),
        "done": done,
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
    }

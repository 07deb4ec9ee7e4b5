"""`load`: load a model that was pruned and saved, ready to run."""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from prunecast.arguments import checked
from prunecast.codesign.tile_maps import WEIGHTS
from prunecast.errors import BadInput
from prunecast.patterns.sources.readers import RECIPE
from prunecast.torch.convert import sparsify
from prunecast.workload.graph.config import CONFIG


@checked
def load(folder: str | Path, model: torch.nn.Module | None = None, **options: Any) -> torch.nn.Module:
    """Load a pruned model from a folder.

    Parameters
    ----------
    folder : a folder that `save_pretrained` or `prunecast prune` wrote for a transformers model; or, with
        `model`, a folder with weights and a recipe that `Pruner` or `prunecast prune` wrote
    model : a model with the same names and shapes, which receives the weights and is returned
    options : keyword arguments for `from_pretrained`, e.g. `device_map="cuda"`; with `model`, those for
        `sparsify`, where `gpu` and `max_tokens` are required

    Raises
    ------
    BadInput : the folder or one of its files is missing, the weights do not fit the model, or in the same
        cases as `sparsify`
    """
    path = Path(folder)
    if model is None:
        if not (path / CONFIG).is_file():
            raise BadInput(
                f"{path} has no {CONFIG} of a transformers model: give the model that it is the state of"
            )
        from prunecast.torch.huggingface import load_pretrained

        found: torch.nn.Module = load_pretrained(path, **options)
        return found
    if not (path / WEIGHTS).is_file() or not (path / RECIPE).is_file():
        raise BadInput(f"{path}: wanted {WEIGHTS} and {RECIPE}, as prunecast prune writes them")
    _take(model, load_file(path / WEIGHTS), path)
    sparsify(model, path, **options)
    return model


def _take(model: torch.nn.Module, state: dict[str, torch.Tensor], path: Path) -> None:
    """Load the weights into the model. Raise BadInput before any is loaded if a name or shape differs."""
    own = model.state_dict()
    for name, tensor in state.items():
        if name not in own:
            raise BadInput(f"{path}: the model has no {name!r}")
        if own[name].shape != tensor.shape:
            raise BadInput(f"{path}: {name} is {tuple(tensor.shape)}, the model's {tuple(own[name].shape)}")
    model.load_state_dict(state, strict=False)

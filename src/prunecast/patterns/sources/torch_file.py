"""Read `.pt`, `.pth`, `.bin` and `.ckpt` with torch's `weights_only`, which runs no code of a pickle.

Versions of torch below 2.6 could still run code (CVE-2025-32434) and are refused.
"""

import importlib
import pickle
import warnings
import zipfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.patterns.sources.stored_tensor import StoredTensor

SUFFIXES = (".pt", ".pth", ".bin", ".ckpt")
FIRST_SAFE = (2, 6)
STATES = ("state_dict", "model_state_dict", "model", "module", "params")
"""Keys under which the checkpoint of a training run may contain its weights."""


def read_torch(path: Path) -> dict[str, StoredTensor]:
    """Return the tensors of a state dictionary; tensors of a zip archive stay memory-mapped until loaded.

    Raises
    ------
    BadInput : torch is missing or too old, or the file contains objects other than tensors, numbers and texts
    """
    torch = _torch(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
        except pickle.UnpicklingError:
            raise BadInput(
                f"{path}: a pickle with more than tensors can run code and is refused; save the model's "
                "state_dict(), or convert the file to .safetensors"
            ) from None
        except Exception as error:  # a damaged archive: torch raises whatever its own code stumbles over
            raise ValueError(str(error) or "empty or damaged") from error
    tensors = _state(found, path.stem)
    if not tensors:
        raise BadInput(f"{path}: wanted a state dictionary of tensors, got {type(found).__name__}")
    return {name: _stored(tensor) for name, tensor in tensors.items()}


def _torch(path: Path) -> Any:
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        raise BadInput(
            f"{path}: a {path.suffix} file needs torch to be read: pip install torch, or convert it to "
            ".safetensors"
        ) from None
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if version < FIRST_SAFE:
        raise BadInput(f"{path}: reading pickles safely needs torch 2.6 or newer, got {torch.__version__}")
    return torch


def _state(found: Any, alone: str) -> dict[str, Any]:
    """Return name -> tensor of a dictionary, of the state dictionary in it, or of a single tensor."""
    if hasattr(found, "detach"):
        return {alone: found}
    if not isinstance(found, Mapping):
        return {}
    tensors = {str(name): value for name, value in found.items() if hasattr(value, "detach")}
    inside: Mapping[Any, Any] = next(
        (found[key] for key in STATES if isinstance(found.get(key), Mapping)), {}
    )
    return tensors or {str(name): value for name, value in inside.items() if hasattr(value, "detach")}


def _stored(tensor: Any) -> StoredTensor:
    dtype = str(tensor.dtype).removeprefix("torch.")
    if str(tensor.layout) != "torch.strided":
        dtype = f"{str(tensor.layout).removeprefix('torch.')} {dtype}"
    return StoredTensor(shape=tuple(tensor.shape), dtype=dtype, load=partial(array_of, tensor))


def array_of(tensor: Any) -> npt.NDArray[Any]:
    """Return a torch tensor as an array, without a copy where possible; bf16 and fp8 use ml_dtypes."""
    whole = tensor.detach().cpu()
    name = str(whole.dtype).removeprefix("torch.")
    if name != "bfloat16" and not name.startswith("float8"):
        return np.asarray(whole)
    import ml_dtypes

    torch = importlib.import_module(type(whole).__module__.partition(".")[0])
    plain = np.asarray(whole.contiguous().view(torch.int16 if name == "bfloat16" else torch.uint8))
    return plain.view(getattr(ml_dtypes, name))

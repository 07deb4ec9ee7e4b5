"""A checkpoint in several `.safetensors` files: a folder, or its index, `model.safetensors.index.json`.

The index (Hugging Face) is a JSON object whose `weight_map` says for each tensor the file it lies in, in the
same folder.
"""

from pathlib import Path

from prunecast.errors import BadInput
from prunecast.files import MIB, check_regular, parse_json, read_bytes
from prunecast.patterns.sources.safetensors import read_safetensors
from prunecast.patterns.sources.stored_tensor import StoredTensor

__all__ = ["INDEX", "read_sharded"]

INDEX = ".safetensors.index.json"
LARGEST_INDEX = 64 * MIB


def read_sharded(path: Path) -> dict[str, StoredTensor]:
    """The tensors of all files together.

    Raises
    ------
    BadInput : no such files in the folder, an index that names others, or a tensor in two files
    """
    found: dict[str, StoredTensor] = {}
    for file, wanted in _files(path).items():
        check_regular(file, "a file of weights")
        tensors = read_safetensors(file)
        missing = next((name for name in wanted or () if name not in tensors), None)
        if missing is not None:
            raise BadInput(f"{file}: the index says that it has {missing!r}, it has not")
        twice = next((name for name in tensors if name in found), None)
        if twice is not None:
            raise BadInput(f"{path}: two files have a tensor {twice!r}")
        found |= tensors
    return found


def _files(path: Path) -> dict[Path, list[str] | None]:
    """File -> tensors that it must have, None where no index says so."""
    if not path.is_dir():
        return _indexed(path)
    indices = sorted(path.glob(f"*{INDEX}"))
    if len(indices) == 1:
        return _indexed(indices[0])
    files = sorted(path.glob("*.safetensors"))
    if not files or indices:
        what = f"{len(indices)} files *{INDEX}" if indices else "no *.safetensors"
        raise BadInput(f"{path}: wanted a folder with a checkpoint in .safetensors, got one with {what}")
    return dict.fromkeys(files)


def _indexed(index: Path) -> dict[Path, list[str] | None]:
    content = read_bytes(index, "an index of a checkpoint", most=LARGEST_INDEX)
    try:
        document = parse_json(content)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{index}: wanted an index of a checkpoint, but: {error}") from None
    places = document.get("weight_map") if isinstance(document, dict) else None
    if (
        not isinstance(places, dict)
        or not places
        or not all(isinstance(name, str) for name in places.values())
    ):
        raise BadInput(f"{index}: wanted an index of a checkpoint with a weight_map of names to files")
    files: dict[Path, list[str] | None] = {}
    for tensor, name in sorted(places.items(), key=lambda place: place[1]):
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise BadInput(f"{index}: files must be .safetensors in the same folder, got {name!r:.80}")
        wanted = files.setdefault(index.parent / name, [])
        assert wanted is not None
        wanted.append(tensor)
    return files

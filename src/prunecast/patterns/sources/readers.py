"""`READERS`: the kinds of weight files, and `open_tensors`, which opens the tensors of any of them.

A checkpoint in several `.safetensors` files is given by its folder or by its index,
`model.safetensors.index.json`: the JSON object (Hugging Face) whose `weight_map` maps each tensor to the file
in the same folder that contains it.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, NoReturn

from prunecast.errors import BadInput
from prunecast.files import MIB, check_regular, parse_json, read_bytes
from prunecast.patterns.sources.matrix_market import read_matrix_market, read_smtx
from prunecast.patterns.sources.numpy_files import read_npy, read_npz
from prunecast.patterns.sources.onnx_file import external_files, read_onnx
from prunecast.patterns.sources.roles import seen_as_products
from prunecast.patterns.sources.safetensors import read_safetensors, safetensors_metadata
from prunecast.patterns.sources.stored_tensor import StoredTensor, failures_named
from prunecast.patterns.sources.torch_file import SUFFIXES, read_torch

INDEX = ".safetensors.index.json"
RECIPE = "recipe.json"
"""File with which `prune` describes pruned weights; the folder has no weights if they were random."""
LARGEST_INDEX = 64 * MIB
PICKLES = {".pkl", ".pickle", ".joblib"}


class Reader(NamedTuple):
    """Functions that read one kind of weight file."""

    endings: tuple[str, ...]
    """Endings of the names of such files, in lower case; empty for a folder."""
    read: Callable[[Path], dict[str, StoredTensor]]
    """Function that returns the tensors as they are stored; it reads only headers if the format has them."""
    others: Callable[[Path], Iterable[Path]] = lambda _: ()
    """Function that returns the files that are read in addition to the given one."""
    texts: Callable[[Path], dict[str, str]] = lambda _: {}
    """Function that returns the text entries of the header."""


def open_tensors(path: Path) -> dict[str, StoredTensor]:
    """Return name -> tensor of a file or a folder, not yet loaded, with weights as (M, K) matrices.

    `load` of a tensor may raise any error of `DAMAGE`: call it inside `failures_named`. Raises BadInput if
    the file cannot be read.
    """
    with failures_named(path):
        return seen_as_products(path, file_tensors(path))


def file_tensors(path: Path) -> dict[str, StoredTensor]:
    """Return name -> tensor of a file or a folder, as stored and not yet loaded.

    Raises BadInput if the file cannot be read.
    """
    if path.suffix.lower() in PICKLES:
        raise BadInput(f"{path}: pickles can run code and are refused; convert the file to .safetensors")
    with failures_named(path):
        if not path.exists():
            raise BadInput(f"{path}: no such file")
        if not path.is_dir():
            check_regular(path, "a file of weights")
        return reader_of(path).read(path)


def files_read(path: Path) -> Iterator[Path]:
    """Yield all files that are opened to read the tensors of `path`, and the folder of a sharded checkpoint.

    Raises
    ------
    BadInput : an index or a model cannot be read
    """
    yield path
    with failures_named(path):
        yield from reader_of(path).others(path)


def reader_of(path: Path) -> Reader:
    """Return the reader of a folder or, by the ending of its name, of a file."""
    name = path.name.lower()
    return FOLDER if path.is_dir() else next((one for one in READERS if name.endswith(one.endings)), UNKNOWN)


def _refuse(path: Path) -> NoReturn:
    wanted = ", ".join(end for reader in READERS for end in reader.endings)
    raise BadInput(f"{path}: wanted a file ending in {wanted}, got {path.suffix or 'no suffix'!r}")


def read_sharded(path: Path) -> dict[str, StoredTensor]:
    """Return name -> tensor of all files of a sharded checkpoint.

    Raises
    ------
    BadInput : no weight files in the folder, an index that names missing files, or a tensor in two files
    """
    found: dict[str, StoredTensor] = {}
    for file, wanted in files_of_folder(path).items():
        tensors = file_tensors(file)
        missing = next((name for name in wanted or () if name not in tensors), None)
        if missing is not None:
            raise BadInput(f"{file}: the index says that it has {missing!r}, it has not")
        twice = next((name for name in tensors if name in found), None)
        if twice is not None:
            raise BadInput(f"{path}: two files have a tensor {twice!r}")
        found |= tensors
    return found


def files_of_folder(path: Path) -> dict[Path, list[str] | None]:
    """Return weight file -> tensors that it must contain (None for any), from a folder or an index."""
    if not path.is_dir():
        return _indexed(path)
    indices = sorted(path.glob(f"*{INDEX}"))
    if len(indices) == 1:
        return _indexed(indices[0])
    whole = [file for file in (path / "model.safetensors", path / "pytorch_model.bin") if file.is_file()]
    # Other files beside these, such as `consolidated.safetensors`, hold the same weights under other names
    files = whole[:1] or sorted(path.glob("*.safetensors")) or sorted(path.glob("pytorch_model*.bin"))
    if not files and (path / RECIPE).is_file():
        raise BadInput(
            f"{path} has a {RECIPE} and no weights, as `prune` writes it for a model by name: wanted a "
            "folder with weights; prunecast.torch.sparsify accepts the recipe"
        )
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


def _with_index(path: Path) -> Iterator[Path]:
    """Yield the folder of a checkpoint in several files, its indices, and its files of weights."""
    folder = path if path.is_dir() else path.parent
    yield folder
    yield from sorted(folder.glob(f"*{INDEX}"))
    yield from files_of_folder(path)


FOLDER = Reader((), read_sharded, _with_index)
UNKNOWN = Reader((), _refuse)
READERS = (
    Reader((".safetensors",), read_safetensors, texts=safetensors_metadata),
    Reader((".npz",), read_npz),
    Reader((".npy",), read_npy),
    Reader((".mtx",), read_matrix_market),
    Reader((".smtx",), read_smtx),
    Reader((".onnx",), read_onnx, external_files),
    Reader(SUFFIXES, read_torch),
    Reader((INDEX,), read_sharded, _with_index),
)
"""Readers of all kinds of files; their endings do not overlap."""

"""`.npy` and `.npz`, without pickles: headers are read first, object arrays refused."""

import zipfile
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.patterns.sources.scipy_npz import is_scipy_npz, scipy_matrix
from prunecast.patterns.sources.stored_tensor import StoredTensor, failures_named

__all__ = ["read_npy", "read_npz"]

SMALL_ARCHIVE_BYTES = 2**26
"""What the members of an archive may unpack to whatever its size."""

MOST_EXPANSION = 200
"""Unpacked over packed size of a larger archive; weights of which 99 % are zeros pack to a fiftieth."""


class Header(NamedTuple):
    """What a `.npy` header says, and where the data begin."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    data_start: int


def read_npy(path: Path) -> dict[str, StoredTensor]:
    """The one array of a `.npy` file, under the name of the file without its suffix. Raises BadInput."""
    with failures_named(path), path.open("rb") as file:
        header = _checked_header(f"{path}", file, path.stat().st_size)
    return {path.stem: _tensor(header, partial(_load_npy, path))}


def read_npz(path: Path) -> dict[str, StoredTensor]:
    """The arrays of a `.npz` file by name, or the one matrix that scipy saved in it. Raises BadInput."""
    with failures_named(path), zipfile.ZipFile(path) as archive:
        members = [info for info in archive.infolist() if info.filename.endswith(".npy")]
        _check_expansion(path, members)
        tensors = {info.filename.removesuffix(".npy"): _npz_tensor(path, archive, info) for info in members}
    return {path.stem: scipy_matrix(path, tensors)} if is_scipy_npz(tensors) else tensors


def _check_expansion(path: Path, members: list[zipfile.ZipInfo]) -> None:
    """Refuse archives whose few bytes unpack to gigabytes, before any of them is unpacked."""
    unpacked, packed = sum(info.file_size for info in members), path.stat().st_size
    if unpacked > max(SMALL_ARCHIVE_BYTES, MOST_EXPANSION * packed):
        raise BadInput(
            f"{path}: {packed} bytes that unpack to {unpacked}: wanted at most {MOST_EXPANSION} times as many"
        )


def _npz_tensor(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> StoredTensor:
    name = info.filename.removesuffix(".npy")
    with failures_named(path, name), archive.open(info) as file:
        header = _checked_header(f"{path}: tensor {name!r}", file, info.file_size)
    return _tensor(header, partial(_load_npz, path, name))


def _checked_header(where: str, file: IO[bytes], size: int) -> Header:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    header = Header(shape, dtype, file.tell())
    if dtype.hasobject:
        raise BadInput(f"{where}: pickled data is refused (dtype object); save a plain float array")
    wanted = np.prod([int(length) for length in shape], dtype=object) * dtype.itemsize
    if min(shape, default=0) < 0 or wanted > size - header.data_start:
        raise BadInput(
            f"{where}: cut off: its header asks for {wanted} bytes, {size - header.data_start} follow"
        )
    return header


def _tensor(header: Header, load: Any) -> StoredTensor:
    lost = header.dtype.kind == "V"
    note = "bf16 loses its type in numpy files: use safetensors" if lost else None
    return StoredTensor(shape=header.shape, dtype=header.dtype.name, load=load, note=note)


def _load_npy(path: Path) -> npt.NDArray[Any]:
    with failures_named(path), path.open("rb") as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def _load_npz(path: Path, name: str) -> npt.NDArray[Any]:
    with failures_named(path, name), zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as file:
        return np.lib.format.read_array(file, allow_pickle=False)

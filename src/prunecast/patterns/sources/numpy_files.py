"""`.npy` and `.npz`, without pickles: headers are read first, object arrays refused.

`.npz` files of `scipy.sparse.save_npz` hold one sparse matrix, which states its own mask. They are read
here and not by scipy, which follows the offsets of a damaged file without looking at them.
"""

import zipfile
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.patterns.sources.stored_tensor import (
    StoredTensor,
    check_places,
    check_size,
    failures_named,
    rows_of_entries,
    sparse_tensor,
)

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
        for name, count in Counter(info.filename for info in members).items():
            if count > 1:
                raise BadInput(f"{path}: {count} members are called {name!r:.80}")
        _check_expansion(path, members)
        tensors = {info.filename.removesuffix(".npy"): _npz_tensor(path, archive, info) for info in members}
    return {path.stem: _scipy_matrix(path, tensors)} if _is_scipy_npz(tensors) else tensors


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
    follow = size - header.data_start
    if min(shape, default=0) < 0 or wanted > follow:
        raise BadInput(f"{where}: cut off: its header asks for {wanted} bytes, {follow} follow")
    if wanted < follow:
        raise BadInput(f"{where}: too long: its header asks for {wanted} bytes, {follow} follow")
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


def _is_scipy_npz(tensors: Mapping[str, StoredTensor]) -> bool:
    """Whether the arrays of a `.npz` file are the parts of one sparse matrix."""
    return {"format", "shape", "data"} <= tensors.keys()


def _scipy_matrix(path: Path, tensors: Mapping[str, StoredTensor]) -> StoredTensor:
    """The matrix; stored entries are its mask, explicit zeros among them.

    Raises
    ------
    BadInput : another format than csr, csc and coo, complex values, or entries outside the matrix

    """
    with failures_named(path):
        layout = np.asarray(tensors["format"].load()).item()
        layout = layout.decode("latin-1") if isinstance(layout, bytes) else str(layout)
        m, k = (int(size) for size in tensors["shape"].load())
        values = tensors["data"].load()
    check_size(path, m, k, values.size)
    if layout not in ("csr", "csc", "coo") or values.dtype.kind not in "fiub" or values.ndim != 1:
        raise BadInput(f"{path}: wanted real values as csr, csc or coo, got {values.dtype} as {layout!r:.20}")
    with failures_named(path):
        if layout == "coo":
            rows, columns = tensors["row"].load(), tensors["col"].load()
        else:
            across = rows_of_entries(path, tensors["indptr"].load(), m if layout == "csr" else k, values.size)
            along = tensors["indices"].load()
            rows, columns = (across, along) if layout == "csr" else (along, across)
        if not rows.shape == columns.shape == values.shape or "f" in rows.dtype.kind + columns.dtype.kind:
            raise BadInput(f"{path}: rows, columns and values of the entries do not belong together")
        check_places(path, "rows", rows, m)
        check_places(path, "columns", columns, k)
        return sparse_tensor(rows, columns, values, (m, k))

"""Read `.npy` and `.npz` without pickles: headers are read first, and object arrays are refused.

`.npz` files of `scipy.sparse.save_npz` contain one sparse matrix, which has its own mask. This module reads
them itself, because scipy uses the offsets of a damaged file without checking them.
"""

import math
import zipfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import IO, Any

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
"""Total unpacked size in bytes up to which an archive is accepted, whatever its packed size is."""
SCIPY_PARTS = {"format", "shape", "data"}
"""Arrays that every `.npz` file of a sparse matrix has."""
MOST_EXPANSION = 200
"""Largest accepted ratio of unpacked to packed size of a larger archive. Weights with 99 % zeros pack to a
fiftieth.
"""


def read_npy(path: Path) -> dict[str, StoredTensor]:
    """Return the array of a `.npy` file, not yet loaded, with the name of the file as key.

    Raises BadInput for an object array, or data whose size differs from the header's.
    """
    with path.open("rb") as file:
        return {
            path.stem: _array(
                f"{path}", file, path.stat().st_size, partial(np.load, path, allow_pickle=False)
            )
        }


def read_npz(path: Path) -> dict[str, StoredTensor]:
    """Return the arrays of a `.npz` file, not yet loaded, or the sparse matrix that scipy saved in it.

    Raises BadInput for a zip bomb, two arrays with one name, and in the same cases as `read_npy`.
    """
    found: dict[str, StoredTensor] = {}
    with zipfile.ZipFile(path) as archive:
        members = [info for info in archive.infolist() if info.filename.endswith(".npy")]
        # Refuse a zip bomb, a small file that unpacks to gigabytes, before anything is unpacked
        unpacked, packed = sum(info.file_size for info in members), path.stat().st_size
        if unpacked > max(SMALL_ARCHIVE_BYTES, MOST_EXPANSION * packed):
            raise BadInput(
                f"{path}: {packed} bytes that unpack to {unpacked}: "
                f"wanted at most {MOST_EXPANSION} times as many"
            )
        for info in members:
            name = info.filename.removesuffix(".npy")
            if name in found:
                raise BadInput(f"{path}: two members are called {info.filename!r:.80}")
            with failures_named(path, name), archive.open(info) as file:
                load = partial(_load_npz, path, info.filename)
                found[name] = _array(f"{path}: tensor {name!r}", file, info.file_size, load)
    return {path.stem: _scipy_matrix(path, found)} if found.keys() >= SCIPY_PARTS else found


def _array(where: str, file: IO[bytes], size: int, load: Callable[[], npt.NDArray[Any]]) -> StoredTensor:
    """Return the array in a file of `size` bytes, not yet loaded, after checking its header."""
    first = np.lib.format.read_magic(file) == (1, 0)
    read = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    follow = size - file.tell()
    if dtype.hasobject:
        raise BadInput(f"{where}: pickled data is refused (dtype object); save a plain float array")
    wanted = math.prod(int(length) for length in shape) * dtype.itemsize
    if min(shape, default=0) < 0 or wanted != follow:
        why = "too long" if wanted < follow else "cut off"
        raise BadInput(f"{where}: {why}: its header asks for {wanted} bytes, {follow} follow")
    note = "bf16 loses its type in numpy files: use safetensors" if dtype.kind == "V" else None
    return StoredTensor(shape=shape, dtype=dtype.name, load=load, note=note)


def _load_npz(path: Path, member: str) -> npt.NDArray[Any]:
    with zipfile.ZipFile(path) as archive, archive.open(member) as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def _scipy_matrix(path: Path, tensors: Mapping[str, StoredTensor]) -> StoredTensor:
    """Return the sparse matrix that scipy saved; the stored entries, including explicit zeros, are its mask.

    Raises
    ------
    BadInput : another format than csr, csc and coo, complex values, or entries outside the matrix
    """
    layout = np.asarray(tensors["format"].load()).item()
    layout = layout.decode("latin-1") if isinstance(layout, bytes) else str(layout)
    m, k = (int(size) for size in tensors["shape"].load())
    values = tensors["data"].load()
    check_size(path, m, k, values.size)
    if layout not in ("csr", "csc", "coo") or values.dtype.kind not in "fiub" or values.ndim != 1:
        raise BadInput(f"{path}: wanted real values as csr, csc or coo, got {values.dtype} as {layout!r:.20}")
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

"""Read and write `.safetensors`; the header is checked before any data are read or allocated.

Layout (safetensors format description): 8 bytes little-endian length of the header, a JSON object
name -> {dtype, shape, data_offsets}, then the data; offsets count from the start of the data.
"""

import json
import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.files import MIB, parse_json
from prunecast.patterns.sources.stored_tensor import StoredTensor

LONGEST_HEADER = 32 * MIB
"""Largest accepted header in bytes, enough for a hundred thousand tensors; parsed, it needs tens of times the
memory. The format allows 100 MB.
"""
MOST_DIMENSIONS = 64
"""Most dimensions of a tensor, numpy's limit."""
LARGEST = 2**63

NUMBERS = {
    **{"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"},
    **{"F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu"},
    **{"I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "C64": "complex64"},
    **{"U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8", "BOOL": "bool"},
}
"""Number format in the file -> its name in numpy or ml_dtypes. Tensors of other formats cannot be loaded."""
CODES = {name: code for code, name in NUMBERS.items()}


def read_safetensors(path: Path) -> dict[str, StoredTensor]:
    """Return the tensors that the header names, not yet loaded, in the order of their data.

    The data must fill the file without overlaps, gaps and trailing bytes, as the reference library requires:
    bytes that belong to no tensor indicate a damaged or forged file.

    Raises
    ------
    BadInput : an invalid header, or tensors that do not fill the file
    """
    header, data_bytes = _header(path)
    entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
    for name, entry in entries.items():
        _check_entry(path, name, entry, data_bytes)
    first, end, before, found = path.stat().st_size - data_bytes, 0, "", {}
    for name, entry in sorted(entries.items(), key=lambda item: item[1]["data_offsets"]):
        start, stop = entry["data_offsets"]
        if start < end:
            raise BadInput(f"{path}: tensor {before!r}: cannot be read: it shares its bytes with {name!r}")
        if start > end:
            raise BadInput(f"{path}: bytes {end} to {start}, before tensor {name!r}, belong to no tensor")
        dtype, shape = NUMBERS.get(entry["dtype"], entry["dtype"]), tuple(entry["shape"])
        load = partial(_load, path, first + start, stop - start, shape, dtype)
        found[name] = StoredTensor(shape=shape, dtype=dtype, load=load)
        before, end = name, stop
    if end < data_bytes:
        raise BadInput(f"{path}: wanted {end} bytes of data, as its header says, got {data_bytes}")
    return found


class ArraySpec(NamedTuple):
    """Number format and shape of an array that has not been computed yet."""

    dtype: npt.DTypeLike
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """Bytes of the array in a file."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


def write_safetensors(
    path: Path,
    arrays: Mapping[str, npt.NDArray[Any]],
    forms: Mapping[str, ArraySpec],
    texts: Mapping[str, str],
) -> None:
    """Write a `.safetensors` file; each array is computed by its mapping just before it is written.

    Parameters
    ----------
    path : file to write
    arrays : name -> array; the mapping may compute an array on access
    forms : number format and shape of each array
    texts : text entries of the header

    Raises
    ------
    OSError, ValueError : a file that cannot be written, an array of a type that the format lacks or that
        differs from its form
    """
    names = sorted(forms, key=lambda name: (-np.dtype(forms[name].dtype).itemsize, name))
    header: dict[str, Any] = {"__metadata__": dict(texts)} if texts else {}
    place = 0
    for name in names:
        dtype, shape = np.dtype(forms[name].dtype), forms[name].shape
        if dtype.name not in CODES:
            raise ValueError(f"tensor {name!r} of dtype {dtype.name}")
        end = place + forms[name].bytes
        header[utf8_name(name)] = {
            "dtype": CODES[dtype.name],
            "shape": [*shape],
            "data_offsets": [place, end],
        }
        place = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            array = arrays[name]
            if (array.dtype.name, array.shape) != (np.dtype(forms[name].dtype).name, forms[name].shape):
                raise ValueError(f"tensor {name!r}: got {array.dtype} {array.shape} for {forms[name]}")
            little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
            file.write(little.reshape(-1).view(np.uint8).data)


def utf8_name(name: str) -> str:
    """Return the stored name of a tensor, with characters that UTF-8 cannot encode escaped."""
    return name.encode("utf-8", "backslashreplace").decode()


def safetensors_metadata(path: Path) -> dict[str, str]:
    """Return the text entries of the header."""
    metadata = _header(path)[0].get("__metadata__") or {}
    return {str(key): str(value) for key, value in metadata.items()}


def _header(path: Path) -> tuple[dict[str, Any], int]:
    """Return the checked JSON object, and the number of data bytes that follow it."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > size - 8 or length > LONGEST_HEADER:
            raise BadInput(
                f"{path}: not a safetensors file, or cut off: header of {length} bytes, file of {size}"
            )
        text = file.read(length)
    try:
        header = parse_json(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path}: not a safetensors file: its header is no JSON: {error}"[:400]) from error
    if not isinstance(header, dict) or not isinstance(header.get("__metadata__", {}), dict):
        raise BadInput(f"{path}: not a safetensors file: its header is no JSON object of tensors")
    return header, size - 8 - length


def _check_entry(path: Path, name: str, entry: Any, data_bytes: int) -> None:
    where = f"{path}: tensor {name!r}"
    if any("\ud800" <= letter <= "\udfff" for letter in name):
        raise BadInput(f"{path}: not a safetensors file: the name {name!r:.80} has half a character")
    try:
        dtype, shape, (start, stop) = entry["dtype"], entry["shape"], entry["data_offsets"]
    except (TypeError, KeyError, ValueError) as error:
        raise BadInput(
            f"{where}: wanted dtype, shape and data_offsets in the header, got {entry!r:.80}"
        ) from error
    numbers = [*shape, start, stop] if isinstance(shape, list) else [None]
    if len(numbers) > MOST_DIMENSIONS + 2:
        raise BadInput(f"{where}: wanted at most {MOST_DIMENSIONS} dimensions, got {len(numbers) - 2}")
    if not isinstance(dtype, str) or not all(
        type(number) is int and 0 <= number < LARGEST for number in numbers
    ):
        raise BadInput(f"{where}: shape and data_offsets must be whole numbers, got {entry!r:.80}")
    if not start <= stop <= data_bytes:
        raise BadInput(f"{where}: cut off: its data end at byte {stop}, the file holds {data_bytes}")
    if dtype in NUMBERS and math.prod(shape) * _numpy(NUMBERS[dtype]).itemsize != stop - start:
        raise BadInput(f"{where}: {dtype} of shape {shape} does not fill its {stop - start} bytes")


def _numpy(name: str) -> np.dtype[Any]:
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name, name)).newbyteorder("<")


def _load(path: Path, start: int, length: int, shape: tuple[int, ...], dtype: str) -> npt.NDArray[Any]:
    """Return one tensor from its byte range, which has been checked.

    The reference library is not used, since it would parse the header again for each tensor.
    """
    if dtype not in CODES:
        raise ValueError(f"numbers of the format {dtype:.40}")
    found = np.fromfile(path, np.uint8, length, offset=start)
    if found.size != length:
        raise ValueError(f"wanted {length} bytes, got {found.size}")
    values: npt.NDArray[Any] = found.view(_numpy(dtype)).reshape(shape)
    return values

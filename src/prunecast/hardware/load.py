"""Find a GPU by name or file and read its quantities, each with its unit, kind and source.

A GPU file may contain only the quantities that differ from those of a bundled GPU: `like = "NAME"` copies the
rest from that GPU. If both have the same compute capability, quantities from the datasheet are copied as they
are, unless they are in `IN_PROPORTION`. All other missing quantities become guesses; those in `IN_PROPORTION`
are scaled with the datasheet quantities listed there.
"""

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

from prunecast.arguments import checked
from prunecast.errors import BadInput, short_text
from prunecast.files import MIB, read_bytes
from prunecast.hardware.check import LARGEST, check_ranges, check_together, read_quantity
from prunecast.hardware.spec import GpuSpec, fingerprint_of, optional_quantities, quantity_units
from prunecast.plugins import load_installed

OWN = (
    *("sm_count", "max_clock_hz", "power_limit_w", "l2_bytes"),
    *("dram_bytes", "dram_peak_bytes_per_s"),
)
"""Quantities that a file with `like` must contain: the vendor publishes them for every GPU."""
IN_PROPORTION = {
    "dram_bytes_per_s": ("dram_peak_bytes_per_s",),
    "dram_write_bytes_per_s": ("dram_peak_bytes_per_s",),
    "dram_copy_bytes_per_s": ("dram_peak_bytes_per_s",),
    "l2_usable_bytes": ("l2_bytes",),
    "l2_bytes_per_s": ("sm_count", "max_clock_hz"),
    "l2_store_bytes_per_s": ("sm_count", "max_clock_hz"),
    "clock_burst_hz": ("max_clock_hz",),
    "clock_sustained_hz": ("max_clock_hz",),
    "clock_activity": ("power_limit_w", "1 / sm_count", "1 / max_clock_hz"),
    "link_bytes_per_s": (),
}
"""Quantity -> the datasheet quantities to which it is proportional. If a file with `like` omits the quantity,
the value of the related GPU is scaled with their ratios. The activity at which clocks fall is proportional to
the power limit per SM cycle. The bandwidth of links is copied unscaled, but always counts as a guess, since
boards with the same chip have different links.
"""


def with_relative(document: Mapping[str, Any], relative: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the tables of a GPU file, completed with the quantities of the related GPU that it lacks.

    Parameters
    ----------
    document : tables of the file, quantity -> table with value, unit, kind and source
    relative : tables of the GPU that the file names with `like`
    where : name of the file in messages

    Raises
    ------
    BadInput : the file lacks one of `OWN`
    """
    missing = next((name for name in OWN if name not in document), None)
    if missing is not None:
        raise BadInput(f"{where}: {missing}: quantity is missing, which a file with 'like' has to give")
    carried = {
        name: _carried(name, entry, document, relative)
        for name, entry in relative.items()
        if isinstance(entry, Mapping) and name not in document
    }
    return {**carried, **document}


def _carried(
    name: str, entry: Mapping[str, Any], document: Mapping[str, Any], relative: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the entry of a quantity that a file lacks, carried over from the GPU `relative` of its `like`.

    The value is scaled by the ratios of the quantities in `IN_PROPORTION`. It becomes a guess, except for a
    datasheet value of the same architecture.
    """
    same = document.get("compute_capability") == relative["compute_capability"]
    if name not in IN_PROPORTION and same and entry["kind"] == "datasheet":
        return dict(entry)
    factor, grows_with = 1.0, ""
    for measure in IN_PROPORTION.get(name, ()):
        own, its = (_number(table, measure.removeprefix("1 / ")) for table in (document, relative))
        factor *= its / own if measure.startswith("1 / ") else own / its
        grows_with = f", in proportion to {' and '.join(IN_PROPORTION[name])}"
    value = _scaled(entry["value"], factor) if grows_with else entry["value"]
    source = f"Carried over from {relative['name']}{grows_with}"
    return {**entry, "value": value, "kind": "guess", "source": source}


def _scaled(value: Any, factor: float) -> Any:
    """Return `factor` * `value`, as an integer if `value` is one, else rounded to six significant digits.

    The points of a list are scaled one by one.
    """
    if isinstance(value, list):
        return [_scaled(point, factor) for point in value]
    return round(factor * value) if isinstance(value, int) else float(f"{factor * value:.6g}")


def _number(document: Mapping[str, Any], name: str) -> float:
    """Return the value of a quantity of a file; 1 if it is not a valid number, which later checks refuse."""
    entry = document[name]
    value = entry.get("value") if isinstance(entry, Mapping) else None
    return float(value) if isinstance(value, int | float) and 1 / LARGEST < value < LARGEST else 1.0


SCHEMA = 1
LARGEST_FILE = MIB
LONGEST_NAME = 200
HEADER = ("schema", "name", "title", "compute_capability", "like")


def gpu_names() -> list[str]:
    """Return the sorted names of the GPUs of this package and of plugins (entry point `prunecast.gpus`)."""
    return sorted(_named_files())


@checked
def load_gpu(name_or_path: str) -> GpuSpec:
    """Read the spec of one GPU.

    Parameters
    ----------
    name_or_path : one of `gpu_names()`, or a file: any text that ends in `.toml` or contains a path separator

    Raises
    ------
    BadInput : unknown name, unreadable file, or a quantity that is missing, unknown, without unit, kind or
        source, of the wrong unit, or implausible. The message names file, quantity and cause.
    """
    return parse_spec(*_content(name_or_path))


def parse_spec(content: bytes, where: str) -> GpuSpec:
    """Return the spec that the content of a GPU file describes; `where` names the file in messages.

    Raises BadInput in the same cases as `load_gpu`.
    """
    document = _document(content, where)
    quantities = {name: read_quantity(document[name], name, where) for name in quantity_units()}
    values: dict[str, Any] = {name: quantity.value for name, quantity in quantities.items()}
    if where not in {file.name for file in _bundled().values()}:
        check_ranges(values, _ranges(), where)  # first: it names the quantity that is wrong
    check_together(values, where)
    capability = int(document["compute_capability"].replace(".", ""))
    return GpuSpec(
        name=document["name"],
        title=document["title"],
        compute_capability=capability,
        provenance=MappingProxyType({name: quantity.provenance for name, quantity in quantities.items()}),
        fingerprint=fingerprint_of({"compute_capability": capability} | values),
        **values,
    )


def spec_text(name_or_path: str) -> str:
    """Return the text of the file from which `load_gpu` reads a GPU.

    Raises BadInput if the name is unknown, or the file cannot be read or is not UTF-8.
    """
    content, where = _content(name_or_path)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise BadInput(f"{where}: wanted a GPU file in TOML, but: {error}") from None


def _content(name_or_path: str) -> tuple[bytes, str]:
    """Return the content of the file of a GPU, and the name by which messages refer to the file."""
    file = _find(name_or_path)
    where = name_or_path if _is_path(name_or_path) else file.name
    return _read(file, where), where


def _gpu_files(folder: Traversable) -> dict[str, Traversable]:
    """Return a dict from GPU name to file, with all GPU files in a folder."""
    files = (file for file in folder.iterdir() if file.name.endswith(".toml"))
    return {file.name.removesuffix(".toml"): file for file in files}


@cache
def _bundled() -> dict[str, Traversable]:
    return _gpu_files(resources.files("prunecast.hardware") / "data")


@cache
def _named_files() -> dict[str, Traversable]:
    """Return a dict from GPU name to file, with the GPUs of this package and of plugins.

    Raises BadInput if two packages have files of the same name.
    """
    found = dict(_bundled())
    for entry, package in load_installed("prunecast.gpus", ModuleType).items():
        for name, file in _gpu_files(resources.files(package)).items():
            if name in found:
                raise BadInput(f"entry point {entry} (prunecast.gpus): another GPU is named {name!r} already")
            found[name] = file
    return found


def spec_files(gpu: str | GpuSpec) -> list[Path]:
    """Return a list with the path of the GPU file if `gpu` is a path, so that no output overwrites the file.

    The list is empty for a GPU that is given by name or as a `GpuSpec`.
    """
    return [Path(gpu)] if isinstance(gpu, str) and _is_path(gpu) else []


def _is_path(name_or_path: str) -> bool:
    separators = {os.sep, os.altsep or os.sep, "/"}
    return name_or_path.endswith(".toml") or any(sign in name_or_path for sign in separators)


def _find(name_or_path: str) -> Traversable:
    if _is_path(name_or_path):
        return Path(name_or_path)
    if name_or_path in _named_files():
        return _named_files()[name_or_path]
    names = gpu_names()
    near = _nearest(name_or_path.lower(), names)
    hint = f"nearest: {', '.join(near)}" if near else f"known: {', '.join(names)}"
    raise BadInput(f"unknown GPU {name_or_path!r}; {hint}; or give the path of a .toml file")


def _nearest(wanted: str, names: list[str]) -> list[str]:
    """Return the names that begin with `wanted`; if there are none, up to three similar names."""
    beginning = [name for name in names if wanted and name.startswith(wanted)]
    return beginning or difflib.get_close_matches(wanted, names, n=3, cutoff=0.5)


def _read(file: Traversable, where: str) -> bytes:
    if isinstance(file, Path):
        return read_bytes(file, "a GPU file", most=LARGEST_FILE)
    return file.read_bytes()


def _parse(content: bytes, where: str) -> dict[str, Any]:
    try:
        return tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{where}: wanted a GPU file in TOML, but: {error}") from None


def _check_header(document: Mapping[str, Any], where: str) -> None:
    if type(document.get("schema")) is not int or document["schema"] != SCHEMA:
        raise BadInput(f"{where}: schema must be {SCHEMA}, got {short_text(document.get('schema'))}")
    for key in ("name", "title"):
        text = document.get(key)
        if not isinstance(text, str) or not text.strip():
            raise BadInput(f"{where}: {key} must be a text, got {short_text(text)}")
        if not text.isprintable() or len(text) > LONGEST_NAME:
            raise BadInput(f"{where}: {key} must be printable and short, got {short_text(text)}")
    capability = document.get("compute_capability")
    if not isinstance(capability, str) or not re.fullmatch(r"[1-9][0-9]?\.[0-9]", capability):
        raise BadInput(f"{where}: compute_capability must be a text like '9.0', got {short_text(capability)}")
    _check_names(document, where)


def _document(content: bytes, where: str) -> dict[str, Any]:
    """Return all tables of a GPU file, including those that it takes from a related GPU with `like`."""
    document = _parse(content, where)
    _check_header(document, where)
    if "like" in document:
        name = document["like"]
        if not isinstance(name, str) or name not in _bundled():
            raise BadInput(f"{where}: like must be the name of a bundled GPU, got {short_text(name)}")
        document = with_relative(document, _whole_file(name, where), where)
    for name, unit in optional_quantities().items():
        guess = {"value": 0, "unit": unit, "kind": "guess", "source": "The file says nothing of it"}
        document = {name: guess, **document}
    for name in quantity_units():
        if name not in document:
            raise BadInput(f"{where}: {name}: quantity is missing")
    return document


def _whole_file(name: str, where: str) -> dict[str, Any]:
    """Return the tables of a bundled GPU file; `where` names the file that refers to it with `like`.

    Raises BadInput if the bundled file itself refers to another file with `like`.
    """
    relative = _parse(_read(_bundled()[name], name), name)
    if "like" in relative:
        raise BadInput(f"{where}: like must be a GPU with a whole file, {name} is like {relative['like']}")
    return relative


def _check_names(document: Mapping[str, Any], where: str) -> None:
    wanted = quantity_units()
    for name in document:
        if name not in wanted and name not in HEADER:
            near = difflib.get_close_matches(name, wanted, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise BadInput(f"{where}: {name!r}: unknown quantity{hint}")


@cache
def _ranges() -> dict[str, tuple[float, float]]:
    """Return the lowest and highest value of each quantity, over bundled GPUs and all points of lists.

    Optional quantities that no bundled GPU has are omitted, so that any measured value is allowed.
    """
    found: dict[str, tuple[float, float]] = {}
    for name, file in _bundled().items():
        document = _document(file.read_bytes(), f"{name}.toml")
        for quantity in quantity_units():
            value = document[quantity]["value"]
            points = [*(value if isinstance(value, list) else [value]), *found.get(quantity, ())]
            found[quantity] = (min(points), max(points))
    return {quantity: limits for quantity, limits in found.items() if any(limits)}

"""`Suite`: the cases of a validation, read from a TOML file such as:

schema = 1
[[case]]                  # one case
name = "o"; m = 4096; k = 4096; n = 2048; pattern = "tile-wise:128"; sparsity = 0.75; ...
[[product]]               # all combinations of the values in these lists
shapes = [[4096, 4096]]; n = [16, 2048]; pattern = ["tile-wise:128"]; sparsity = [0.5, 0.9]; ...
keep_one_in = 2           # keep about half of the combinations, selected by a hash of the case
"""

import hashlib
import itertools
import json
import math
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, get_origin, get_type_hints

from prunecast.errors import BadInput, short_text
from prunecast.files import MIB, read_text
from prunecast.kernels import KERNELS
from prunecast.launch import USUAL
from prunecast.patterns import parse_pattern
from prunecast.validation.case import RECORDED, Case, check_case, conditions_of, recorded, use_by_rule

SCHEMA = 1
LARGEST_SUITE = 4 * MIB
MOST_COMBINATIONS = 1_000_000
LARGEST = 2**63
"""Upper limit of the numbers of a suite; it also excludes infinity and NaN."""
MEASURED = tuple(
    name
    for name, kernel in KERNELS.items()
    if name in ("dense", "csr") or not (kernel.library or kernel.parts)
)
"""Kernels that a suite may name: of the vendor's libraries, only cuBLAS and cuSPARSE are called on a GPU."""
_ALLOWED = ("schema", "name", "title", "case", "product")
_TYPES: dict[str, tuple[type, ...]] = {
    name: (list,) if get_origin(kind) is tuple else (int, float) if kind is float else (kind,)
    for name, kind in {**get_type_hints(Case), **dict.fromkeys(RECORDED, str)}.items()
    if name != "conditions"
}
_WORDS = {str: "a text", int: "a whole number", float: "a number", list: "a list"}
_DEFAULTS: dict[str, Any] = {
    "dtype": "fp16",
    "sparsity": 0.0,
    "distribution": "equal",
    "seed": 1,
    **recorded(USUAL),
}
_LISTS = ("n", "dtype", "pattern", "sparsity", "distribution", "seed", *RECORDED)
_PRODUCT = ("shapes", "kernels", "use", "keep_one_in", *_LISTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """Cases with unique names, in order.

    Parameters
    ----------
    name : name of the suite
    cases : cases in the order of the file
    fingerprint : first 16 hex digits of the SHA-256 of all cases
    """

    name: str
    cases: tuple[Case, ...]
    fingerprint: str

    def part(self, number: int, parts: int) -> "Suite":
        """Return part `number` (from 1) of a suite divided into `parts`; a layer's cases are in one part."""
        own = layers_of_part(self.cases, number, parts)
        cases = tuple(case for case in self.cases if case.layer in own)
        return Suite(name=self.name, cases=cases, fingerprint=self.fingerprint)


def layers_of_part(cases: Iterable[Case], number: int, parts: int) -> set[str]:
    """Return the layers (`Case.layer`) of part `number` (from 1) if cases are divided into `parts` parts.

    Layers are assigned to parts round robin. Raises BadInput for a part without a layer, and for one that is
    not of `parts`.
    """
    if not 1 <= number <= parts:
        raise BadInput(f"part must be I/N with 1 <= I <= N, got {number}/{parts}")
    layers = list(dict.fromkeys(case.layer for case in cases))
    if number > max(len(layers), 1):
        raise BadInput(f"part {number}/{parts} holds no row: there are rows of {len(layers)} layers")
    return set(layers[number - 1 :: parts])


def suite_names() -> list[str]:
    """Return the names of the bundled suites, sorted."""
    files = (resources.files("prunecast.validation") / "suites").iterdir()
    return sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml"))


def load_suite(name_or_path: str) -> Suite:
    """Return a bundled suite by name, or a suite from a file.

    A text that ends in `.toml`, or names an existing file such as `/dev/stdin`, is a path.

    Raises
    ------
    BadInput : the file is unreadable or has another schema, a key is unknown or missing, a value is invalid,
        or two cases have the same name and state
    """
    where, text = _read(name_or_path)
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{where}: wanted a suite in TOML, but: {error}") from None
    if document.get("schema") != SCHEMA:
        raise BadInput(f"{where}: schema must be {SCHEMA}, got {short_text(document.get('schema'))}")
    _check_keys(document, _ALLOWED, where)
    cases = [*_single_cases(document, where), *_products(document, where)]
    if not cases:
        raise BadInput(f"{where}: wanted [[case]] or [[product]] tables, found none")
    _check_unique(cases, where)
    listed = json.dumps([case.document() for case in cases])
    digest = hashlib.sha256(listed.encode()).hexdigest()[:16]
    return Suite(name=str(document.get("name", where)), cases=tuple(cases), fingerprint=digest)


def _read(name_or_path: str) -> tuple[str, str]:
    if name_or_path.endswith(".toml") or (name_or_path not in suite_names() and Path(name_or_path).exists()):
        return name_or_path, read_text(name_or_path, "a suite", most=LARGEST_SUITE)
    if name_or_path not in suite_names():
        known = ", ".join(suite_names())
        raise BadInput(f"unknown suite {name_or_path!r}; known: {known}; or give the path of a .toml file")
    file = resources.files("prunecast.validation") / "suites" / f"{name_or_path}.toml"
    return file.name, file.read_text(encoding="utf-8")


def _check_keys(table: Mapping[str, Any], allowed: tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in allowed:
            raise BadInput(f"{where}: unknown key {key!r}; known: {', '.join(allowed)}")


def _tables(document: Mapping[str, Any], key: str, where: str) -> list[dict[str, Any]]:
    tables = document.get(key, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise BadInput(f"{where}: {key} must be tables, written [[{key}]]")
    return tables


def _single_cases(document: Mapping[str, Any], where: str) -> Iterator[Case]:
    for number, table in enumerate(_tables(document, "case", where), 1):
        place = f"{where}: case {short_text(table.get('name', number))}"
        _check_keys(table, tuple(_TYPES), place)
        yield _case({**_DEFAULTS, **table}, place)


def _products(document: Mapping[str, Any], where: str) -> Iterator[Case]:
    for number, table in enumerate(_tables(document, "product", where), 1):
        place = f"{where}: product {number}"
        _check_keys(table, _PRODUCT, place)
        full = {name: [default] for name, default in _DEFAULTS.items()} | table
        for name in ("shapes", *_LISTS):
            if not isinstance(full.get(name), list) or not full[name]:
                raise BadInput(f"{place}: {name} must be a list with at least one value")
        rare = table.get("keep_one_in", 1)
        if type(rare) is not int or not 1 <= rare < LARGEST:
            raise BadInput(f"{place}: keep_one_in must be a whole number from 1, got {short_text(rare)}")
        combinations = math.prod(len(full[name]) for name in ("shapes", *_LISTS))
        if combinations > MOST_COMBINATIONS:
            raise BadInput(f"{place}: at most {MOST_COMBINATIONS} combinations, got {combinations}")
        for shape in full["shapes"]:
            if not isinstance(shape, list) or len(shape) != 2:
                raise BadInput(f"{place}: shapes must be pairs [m, k], got {short_text(shape)}")
            extra: dict[str, Any] = {name: table[name] for name in ("kernels", "use") if name in table}
            extra |= {"m": shape[0], "k": shape[1]}
            # Check every value once, since only a few combinations are drawn.
            for name in _LISTS:
                for value in full[name]:
                    _case({**{one: full[one][0] for one in _LISTS}, name: value, **extra}, place)
            for values in itertools.product(*(full[name] for name in _LISTS)):
                drawn = dict(zip(_LISTS, values, strict=True)) | extra
                if rare == 1 or _hash(drawn) % rare == 0:
                    yield _case(drawn, place)


def _case(values: dict[str, Any], where: str) -> Case:
    for name in ("m", "k", "n", "pattern", "kernels"):
        if name not in values:
            raise BadInput(f"{where}: {name} is missing")
    for name, value in values.items():
        if not isinstance(value, _TYPES[name]) or isinstance(value, bool):
            kind = _WORDS[_TYPES[name][-1]]
            raise BadInput(f"{where}: {name} must be {kind}, got {short_text(value)}")
        if isinstance(value, int | float) and not abs(value) < LARGEST:
            raise BadInput(f"{where}: {name} must be a sensible number, got {short_text(value)}")
    if not all(isinstance(kernel, str) for kernel in values["kernels"]):
        raise BadInput(f"{where}: kernels must be names, got {short_text(values['kernels'])}")
    unknown = [kernel for kernel in values["kernels"] if kernel not in MEASURED]
    if unknown:
        what = "no measured" if unknown[0] in KERNELS else "unknown"
        raise BadInput(f"{where}: {what} kernel {unknown[0]!r}; known: {', '.join(MEASURED)}")
    if complaint := _complaint(values["pattern"]):
        raise BadInput(f"{where}: {complaint}")
    clean = {**values, "sparsity": float(values["sparsity"]), "kernels": tuple(values["kernels"])}
    own = {name: value for name, value in clean.items() if name not in RECORDED}
    case = Case(**{"name": "", "use": "", **own}, conditions=conditions_of(values, where))
    use = case.use or use_by_rule(case.m, case.k, case.n, case.usual_name.partition(" ")[2])
    return check_case(replace(case, name=case.name or case.usual_name, use=use), where)


@cache
def _complaint(pattern: str) -> str:
    """Return the reason why a pattern is invalid, or an empty text if it is valid.

    The result is cached, since many cases have the same pattern.
    """
    try:
        parse_pattern(pattern)
    except BadInput as error:
        return str(error)
    return ""


def _hash(values: Mapping[str, Any]) -> int:
    """Return a hash of a case's fields, by which `keep_one_in` selects cases independently of their order.

    Another condition must not enter it: it would select other cases of suites whose runs are recorded.
    """
    layer = "{m}x{k}x{n} {dtype}".format_map(values)
    text = "{pattern} {sparsity:g} {distribution} {seed} {state}".format_map(values)
    return int.from_bytes(hashlib.sha256(f"draw {layer} {text}".encode()).digest()[:4], "big")


def _check_unique(cases: list[Case], where: str) -> None:
    seen = set()
    for case in cases:
        key = case.key("")
        if key in seen:
            stated = ", ".join(recorded(case.conditions).values())
            raise BadInput(f"{where}: case {case.name!r} ({stated}) is there twice")
        seen.add(key)

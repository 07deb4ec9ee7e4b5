"""Costs of one kernel on one GPU architecture: numbers that were measured or fitted, with their sources.

A kernel stores its costs next to its sources in files such as `costs/sm_90.toml`. If an architecture has no
file, or its file lacks an entry, the entry comes from the nearest architecture that has it and is marked as a
guess.
"""

import datetime
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from types import MappingProxyType

from prunecast.errors import BadInput, short_text
from prunecast.hardware.check import check_number, check_table, check_text
from prunecast.hardware.spec import KINDS, fingerprint_of

COST_KINDS = (*KINDS, "as-compiled")
"""Kinds of numbers in cost files; `as-compiled` numbers are counted in the machine code of the kernel."""

COST_UNITS = ("cycle", "instruction", "byte", "ratio", "count", "s", "clk/byte")
WHOLE_UNITS = ("instruction", "byte", "count")
"""Units whose values are whole numbers."""

KEYS = ("value", "unit", "kind", "source", "date", "meaning")
MAY_LACK = ("worth",)
"""Optional keys. `worth` is the change in predictions that the entry causes, if it was measured."""

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Cost:
    """One entry of a cost file.

    Parameters
    ----------
    value : the number, in `unit`
    unit : one of `COST_UNITS`
    kind : one of `COST_KINDS`
    source : measurement, machine-code listing or document that the value comes from
    date : date of the measurement or fit, `YYYY-MM-DD`
    meaning : description of the quantity
    worth : change in predictions that the entry causes; empty if this change was not measured
    """

    value: int | float
    unit: str
    kind: str
    source: str
    date: str
    meaning: str
    worth: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Costs:
    """All cost entries of one kernel on one architecture.

    Objects compare and hash by identity, so that they can be arguments of cached functions.

    Parameters
    ----------
    kernel : name of the kernel's folder, e.g. `tile`
    architecture : the requested architecture, e.g. `sm_89`
    entries : entry name -> `Cost`
    inherited : entry name -> architecture whose file contains it, for entries taken from another architecture
    fingerprint : first 16 hex digits of the SHA-256 of all values
    values : entry name -> value, in the entry's unit
    guessed_share : fraction of the entries, 0 to 1, whose kind is `guess`; 0 if there are no entries
    """

    kernel: str
    architecture: str
    entries: Mapping[str, Cost]
    inherited: Mapping[str, str]
    fingerprint: str
    values: Mapping[str, float] = field(init=False, repr=False)
    guessed_share: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", {name: cost.value for name, cost in self.entries.items()})
        guesses = sum(cost.kind == "guess" for cost in self.entries.values())
        object.__setattr__(self, "guessed_share", guesses / max(len(self.entries), 1))

    def __getitem__(self, name: str) -> float:
        """Return the value of an entry, in the entry's unit."""
        return self.values[name]

    def whole(self, name: str) -> int:
        """Return the value of an entry, rounded to an integer."""
        return round(self.entries[name].value)

    def __deepcopy__(self, memo: dict[int, object]) -> "Costs":
        """Return the object itself, which is immutable."""
        return self


@cache
def load_costs(package: str, compute_capability: int) -> Costs:
    """Return the costs of a kernel on GPUs of one compute capability.

    Parameters
    ----------
    package : package of the kernel, e.g. `prunecast.kernels.tile`, which contains a folder `costs`
    compute_capability : compute capability times ten, as in `GpuSpec` (90 for 9.0)

    Raises
    ------
    BadInput : in the same cases as `read_costs`
    """
    return read_costs(resources.files(package) / "costs", package.rpartition(".")[2], compute_capability)


def read_costs(folder: Traversable, kernel: str, compute_capability: int) -> Costs:
    """Return the costs in a folder of files `sm_*.toml` for one compute capability.

    Parameters
    ----------
    kernel : name of the kernel in messages and in the result
    compute_capability : compute capability times ten (90 for 9.0)

    Raises
    ------
    BadInput : the folder contains no such file; or an entry lacks its value, unit, kind, source, date or
        meaning, or one of these is invalid. The message names the file, the entry and the cause.
    """
    wanted, entries, inherited = compute_capability, dict[str, Cost](), dict[str, str]()
    files = {_capability(file.name): file for file in folder.iterdir() if file.name.endswith(".toml")}
    if not files:
        raise BadInput(f"{kernel}: wanted costs/sm_*.toml, there is none")
    # The nearest architecture is first: the same major version, then the closest number, then the older one
    nearness = {found: (found // 10 != wanted // 10, abs(found - wanted), found) for found in files}
    for capability in sorted(files, key=nearness.__getitem__):
        where = f"{kernel}/costs/{files[capability].name}"
        for name, cost in read_entries(files[capability], where).items():
            if name in entries:
                continue
            if capability != wanted:
                source = f"carried over from sm_{capability}, {cost.kind} there: {cost.source}"
                cost = replace(cost, kind="guess", source=source)
                inherited[name] = f"sm_{capability}"
            entries[name] = cost
    return Costs(
        kernel=kernel,
        architecture=f"sm_{compute_capability}",
        entries=MappingProxyType(dict(sorted(entries.items()))),
        inherited=MappingProxyType(inherited),
        fingerprint=fingerprint_of({name: entries[name].value for name in sorted(entries)}),
    )


def _capability(name: str) -> int:
    found = re.fullmatch(r"sm_([1-9][0-9]{1,2})\.toml", name)
    if found is None:
        raise BadInput(f"{name}: a file of costs must be named like sm_90.toml")
    return int(found[1])


def read_entries(file: Traversable, where: str) -> dict[str, Cost]:
    """Return the entries of one file by name; `where` names the file in messages.

    Raises
    ------
    BadInput : the file or an entry is invalid, see `read_costs`
    """
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"{where}: wanted a file of costs in TOML, but: {error}") from None
    if document.pop("schema", None) != SCHEMA:
        raise BadInput(f"{where}: schema must be {SCHEMA}")
    return {name: _cost(entry, f"{where}: {name}") for name, entry in document.items()}


def _cost(entry: object, at: str) -> Cost:
    table = check_table(entry, KEYS, COST_KINDS, at, MAY_LACK)
    unit = table["unit"]
    if unit not in COST_UNITS:
        raise BadInput(f"{at}: unit must be one of {', '.join(COST_UNITS)}, got {short_text(unit)}")
    for key in ("source", "meaning", *(key for key in MAY_LACK if key in table)):
        check_text(table[key], f"{key} must be a text", at)
    _check_date(table["date"], at)
    number = check_number(table["value"], at, zero=True)
    if unit in WHOLE_UNITS and number != int(number):
        raise BadInput(f"{at}: value must be a whole number of {unit}s, got {short_text(table['value'])}")
    return Cost(**table)


def _check_date(date: object, at: str) -> None:
    try:
        datetime.date.fromisoformat(date if isinstance(date, str) else "")
    except ValueError:
        raise BadInput(f"{at}: date must be a text like '2026-11-22', got {short_text(date)}") from None

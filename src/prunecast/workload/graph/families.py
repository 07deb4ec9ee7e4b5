"""Families of transformers: `families.toml` holds their common facts and the names in their checkpoints."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from prunecast.files import packaged_toml


class Field(NamedTuple):
    """Location of a size of `Transformer` in config.json; comments in `families.toml` explain the fields."""

    names: list[str]
    default: int | str | None = None
    times: int = 1
    condition: str = ""
    companion: str = ""
    experts: list[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A family of transformers.

    Parameters
    ----------
    facts : arguments of `Transformer` with the same value for all models of the family
    fields : argument of `Transformer` -> its location in a configuration, in the order of reading
    tensors, experts, outside : name of a matrix in a layer, in an expert, or outside of the layers -> name of
        its product in the graph
    """

    facts: Mapping[str, Any]
    fields: Mapping[str, Field]
    tensors: Mapping[str, str]
    experts: Mapping[str, str]
    outside: Mapping[str, str]


@cache
def families() -> dict[str, Family]:
    """Return the families by `model_type` or by class name."""
    return families_of(packaged_toml(__package__, "families.toml"))


def families_of(rows: Mapping[str, Any]) -> dict[str, Family]:
    """Return the families that a parsed file in the format of `families.toml` describes."""
    return {name: _family(rows, name) for name in rows}


def _family(rows: Mapping[str, Any], name: str) -> Family:
    own = dict(rows[name])
    parent = own.pop("like", None)
    base = _family(rows, parent) if parent else None
    tables = {key: own.pop(key, {}) for key in ("fields", "tensors", "experts", "outside")}
    tables["fields"] = {
        size: Field(**{{"if": "condition", "with": "companion"}.get(key, key): v for key, v in entry.items()})
        for size, entry in tables["fields"].items()
    }
    return Family(
        facts={**(base.facts if base else {}), **own},
        **{key: {**(getattr(base, key) if base else {}), **table} for key, table in tables.items()},
    )

"""Families of transformers: `families.toml` holds their common facts and the names in their checkpoints.

`Family.sizes` reads a configuration by these fields. The comments of `families.toml` describe its grammar.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from prunecast.errors import BadInput
from prunecast.files import packaged_toml

MOST = 2**20
"""Largest accepted number of features, of heads, or of tokens in the vocabulary of a configuration."""
MOST_LAYERS = 1024
"""Upper limit for layers, eight times as many as in Llama 3.1 405B. A layer has a dozen operations."""


class Field(NamedTuple):
    """Location of a size of `Transformer` in config.json; comments in `families.toml` explain the fields."""

    names: tuple[str, ...] = ()
    default: int | str | None = None
    times: int = 1
    condition: str = ""
    equals: bool | str = True
    absent: bool = False
    companion: str = ""
    experts: tuple[str, ...] = ()

    def applies(self, config: Mapping[str, Any], before: Mapping[str, int], where: str) -> bool:
        """Return True if the size has this location in `config`, after the sizes `before` were read.

        Raise BadInput if the field `condition` is neither null nor of the type that it is compared with.
        """
        flag, kind = config.get(self.condition), type(self.equals)
        if flag is not None and not isinstance(flag, kind):
            wanted = "true or false" if kind is bool else "a text"
            raise BadInput(f"{where}: {self.condition} must be {wanted}, got {flag!r:.40}")
        is_on = self.absent if flag is None else flag == self.equals
        return (is_on or not self.condition) and before.get(self.companion) != 0

    def read(self, config: Mapping[str, Any], before: Mapping[str, int], where: str, most: int) -> int:
        """Return the size in `config`. Raise BadInput for a value that is no integer from 1 to `most`."""
        names = self.experts if self.experts and before.get("experts") else self.names
        name = next((name for name in names if config.get(name) is not None), None)
        default = self.default
        if isinstance(default, str):
            default = min(self.times * before[default], MOST)
        found = default if name is None else config[name]
        if type(found) is not int or not (0 if found == default else 1) <= found <= most:
            raise BadInput(f"{where}: {name or names[0]} must be 1 to {most}, got {found!r:.40}")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A family of transformers.

    Parameters
    ----------
    facts : arguments of `Transformer` with the same value for all models of the family
    fields : argument of `Transformer` -> its possible locations in a configuration, of which the first one
        that applies counts; in the order of reading
    tensors, experts, outside : name of a matrix in a layer, in an expert, or outside of the layers -> name of
        its product in the graph
    """

    facts: Mapping[str, Any]
    fields: Mapping[str, tuple[Field, ...]]
    tensors: Mapping[str, str]
    experts: Mapping[str, str]
    outside: Mapping[str, str]

    def names(self, size: str, *, of_experts: bool = False) -> list[str]:
        """Return the fields of a configuration that may hold a size, of experts or of other layers."""
        fields = self.fields.get(size, ())
        own = (field.experts if of_experts and field.experts else field.names for field in fields)
        return [name for names in own for name in names]

    def sizes(self, config: Mapping[str, Any], where: str) -> dict[str, Any]:
        """Return the arguments of `Transformer` for a model of the family.

        Parameters
        ----------
        config : the configuration, as in `config.json`
        where : path of the configuration, used in messages

        Raises
        ------
        BadInput : a number is missing or out of range, or sizes contradict each other
        """
        found: dict[str, int] = {}
        for size, fields in self.fields.items():
            field = next((field for field in fields if field.applies(config, found, where)), Field(default=0))
            found[size] = field.read(config, found, where, MOST_LAYERS if size == "layers" else MOST)
        if found["hidden"] % found["heads"] and not found.get("head_width"):
            name, hidden = self.names("heads")[0], found["hidden"]
            raise BadInput(f"{where}: {name} must divide {hidden} features, got {found['heads']}")
        if experts := found.get("experts"):
            # The default of a family may exceed the experts of a small model, but not a number in the file
            names, per_token = self.names("experts_per_token"), found["experts_per_token"]
            if per_token > experts and any(config.get(name) is not None for name in names):
                raise BadInput(f"{where}: {names[0]} must be 1 to the {experts} experts, got {per_token}")
            found["experts_per_token"] = min(experts, per_token)
        tied = config.get("tie_word_embeddings")
        is_tied = tied if isinstance(tied, bool) else bool(self.facts.get("tied_head"))
        return {**self.facts, **found, "tied_head": is_tied}


@cache
def families() -> dict[str, Family]:
    """Return the families by `model_type` or by class name."""
    return families_of(packaged_toml(__package__, "families.toml"))


def families_of(rows: Mapping[str, Any]) -> dict[str, Family]:
    """Return the families that a parsed file in the format of `families.toml` describes."""
    return {name: _family(rows, name) for name in rows}


def _family(rows: Mapping[str, Any], name: str) -> Family:
    """Return a family with the facts and tables of its entry, added to those of the family in `like`.

    An entry replaces single facts, and single keys of a table.
    """
    own = dict(rows[name])
    parent = own.pop("like", None)
    base = _family(rows, parent) if parent else None
    tables = {key: own.pop(key, {}) for key in ("fields", "tensors", "experts", "outside")}
    tables["fields"] = {
        size: tuple(map(_field, entry if isinstance(entry, list) else [entry]))
        for size, entry in tables["fields"].items()
    }
    return Family(
        facts={**(base.facts if base else {}), **own},
        **{key: {**(getattr(base, key) if base else {}), **table} for key, table in tables.items()},
    )


def _field(entry: Mapping[str, Any]) -> Field:
    words = {"if": "condition", "with": "companion"}
    values: dict[str, Any] = {
        words.get(key, key): tuple(value) if isinstance(value, list) else value
        for key, value in entry.items()
    }
    return Field(**values)

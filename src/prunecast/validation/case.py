"""`Case`: a matrix product to be predicted and measured, and whether constants may be fitted to its time."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from prunecast.errors import BadInput
from prunecast.launch import USUAL, Conditions
from prunecast.plan.kernel_plan import OWN_DTYPES

DISTRIBUTIONS = ("equal", "random", "lognormal", "ramp", "one-full")
"""Distributions of kept columns over tiles, in this order: equal counts; each column kept at random; counts
proportional to exp(s * normal), where s is 0.8 in `lognormal:0.8`; counts proportional to the index of the
tile; one tile keeps all columns. All except `random` keep the same total number of columns."""

USES = ("fit", "judge")
RECORDED = {"state": 2}
"""Conditions (entries of `Conditions.document`) that suites and records state -> first schema of records that
has their column. Older records were measured in the usual condition, as are all conditions that are not here.

Each is a key of suites, a column of records, a part of `RowKey` and of `Group`, and a column of all tables
that are made of groups.
"""
FIRST_SCHEMA, RECORD_SCHEMA = min(RECORDED.values()), max(RECORDED.values())
"""Oldest schema of records that is read, and the schema of those that are written."""
DEFAULT_SPREAD = 0.8
"""`Distribution.spread` of `lognormal` without a number. Kind: choice."""

LARGEST = 2**31 - 1
"""Largest number of elements of A, and of tokens: the range of int32 offsets."""


class Distribution(NamedTuple):
    """Parsed distribution of kept columns over tiles."""

    family: str
    """One of `DISTRIBUTIONS`."""
    spread: float
    """Standard deviation of the logarithm of the counts for `lognormal`; 0 for the other families."""


def recorded(conditions: Conditions) -> dict[str, str]:
    """Return the entries of `conditions` that suites and records state, by name."""
    return {name: text for name, text in conditions.document().items() if name in RECORDED}


class RowKey(NamedTuple):
    """Key of a row of suites and records; rows with the same key are measurements of the same thing."""

    case: str
    kernel: str
    conditions: Conditions

    @property
    def text(self) -> str:
        """Name of the case, kernel and the conditions that files state, joined by `|`."""
        return "|".join((self.case, self.kernel, *recorded(self.conditions).values()))


class Group(NamedTuple):
    """Kernel and conditions of rows whose errors are summarised together."""

    kernel: str
    conditions: Conditions

    def cells(self) -> dict[str, str]:
        """Return the texts of `GROUP_COLUMNS`, by column."""
        return {"kernel": self.kernel, **recorded(self.conditions)}


GROUP_COLUMNS = ("kernel", *RECORDED)
"""First columns of the tables that have a row for each group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One product C (M, N) = A (M, K) B (K, N) of a suite.

    Parameters
    ----------
    name : name of the case; unique in its suite together with `conditions`
    m, k : rows and columns of A
    n : tokens (columns of B)
    dtype : number format of A, B and C: `fp16`, `bf16` or `fp32`
    pattern : pattern string, e.g. `tile-wise:128`, or `dense`
    sparsity : fraction of the weights of A that is removed, at least 0 and below 1
    distribution : one of `DISTRIBUTIONS`; in `lognormal:0.8` the number is the spread
    seed : seed of the random map of kept weights
    kernels : names of the kernels that run the case
    conditions : conditions of its launches; files state those that `RECORDED` names
    use : `fit` if constants of the models may be fitted to the measured time, `judge` if the time is only
        used to report errors of predictions
    """

    name: str
    m: int
    k: int
    n: int
    dtype: str
    pattern: str
    sparsity: float
    distribution: str = "equal"
    seed: int = 1
    kernels: tuple[str, ...]
    conditions: Conditions = USUAL
    use: str

    @property
    def layer(self) -> str:
        """M x K x N and the number format, as text."""
        return f"{self.m}x{self.k}x{self.n} {self.dtype}"

    @property
    def usual_name(self) -> str:
        """The default name of a case: sizes, dtype, pattern, sparsity, distribution and seed."""
        kept = f"{self.pattern} {self.sparsity:g} {self.distribution} #{self.seed}"
        return f"{self.layer} {kept}"

    def key(self, kernel: str) -> RowKey:
        """Return the key of the recorded row of this case, run by `kernel`."""
        return RowKey(self.name, kernel, self.conditions)

    def document(self) -> dict[str, Any]:
        """Return the entries of the case in suites, name -> value, in the order of the fields.

        Usual conditions that the first schema did not have are left out, so that the fingerprints of older
        suites stay the same.
        """
        found: dict[str, Any] = {}
        for f in fields(self):
            if f.name != "conditions":
                found[f.name] = getattr(self, f.name)
                continue
            for name, text in recorded(self.conditions).items():
                if RECORDED[name] == FIRST_SCHEMA or text != recorded(USUAL)[name]:
                    found[name] = text
        return found


def conditions_of(entries: Mapping[str, Any], where: str) -> Conditions:
    """Return the conditions that the entries of a case state; the usual ones for missing entries.

    Raises
    ------
    BadInput : an unknown value; the message begins with `where`
    """
    return Conditions.of({name: entries[name] for name in RECORDED if name in entries}, where)


def check_case(case: Case, where: str) -> Case:
    """Return `case` unchanged; raise BadInput if a value is invalid. The message begins with `where`."""
    for name in ("m", "k", "n"):
        if getattr(case, name) < 1:
            raise BadInput(f"{where}: {name} must be at least 1, got {getattr(case, name)}")
    if case.m * case.k > LARGEST or case.n > LARGEST:
        raise BadInput(f"{where}: m * k and n must be at most {LARGEST}, got {case.layer}")
    if case.seed < 0:
        raise BadInput(f"{where}: seed must be 0 or more, got {case.seed}")
    if not 0.0 <= case.sparsity < 1.0:
        raise BadInput(f"{where}: sparsity must be in [0, 1), got {case.sparsity}")
    for name, known in (("dtype", OWN_DTYPES), ("use", USES)):
        if getattr(case, name) not in known:
            raise BadInput(f"{where}: {name} must be one of {', '.join(known)}, got {getattr(case, name)!r}")
    if not case.kernels:
        raise BadInput(f"{where}: kernels must name at least one")
    parse_distribution(case.distribution, where)
    return case


def parse_distribution(text: str, where: str = "distribution") -> Distribution:
    """Parse a distribution such as `equal` or `lognormal:0.8`.

    Raises
    ------
    BadInput : the text is no distribution; the message begins with `where`
    """
    family, _, spread = text.partition(":")
    if family not in DISTRIBUTIONS or (spread and family != "lognormal"):
        raise BadInput(f"{where}: distribution must be one of {', '.join(DISTRIBUTIONS)}, got {text!r}")
    if spread and not re.fullmatch(r"[0-9]+(\.[0-9]+)?", spread):
        raise BadInput(f"{where}: lognormal:SPREAD needs a number, got {text!r}")
    if family != "lognormal":
        return Distribution(family, 0.0)
    return Distribution(family, float(spread) if spread else DEFAULT_SPREAD)


def use_by_rule(m: int, k: int, n: int, what: str) -> str:
    """Return `fit` or `judge` for a product, chosen by one bit of a SHA-256 of the product.

    Kernel and state are not hashed, so that all kernels have the same use for a product: if constants are
    fitted to the product with one kernel, errors of other kernels are not reported from it.

    Parameters
    ----------
    what : text of number format, pattern, sparsity, distribution and seed
    """
    digest = hashlib.sha256(f"{m}x{k}x{n} {what}".encode()).digest()
    return USES[digest[0] & 1]

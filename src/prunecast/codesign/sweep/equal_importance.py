"""Importance of a sweep's random weights, and sparsities at which patterns retain the same share of it."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from prunecast.codesign.sweep.cases import GroupKey, SweepCase, groups_of
from prunecast.errors import BadInput
from prunecast.patterns import parse_pattern, retained_importance, weigh
from prunecast.patterns.importance import ImportanceArray
from prunecast.workload.pruned_maps import no_taller_than, sparsity_for, sparsity_retaining

MOST_SHARED = 2**26
"""Largest number of weights of a matrix whose importance a worker caches (256 MiB)."""


def importance_of_group(key: GroupKey) -> ImportanceArray:
    """Return the importance (M, K) of the random weights that the sweep cases of a group share."""
    importance = _shared_importance if key.m * key.k <= MOST_SHARED else _importance
    return importance(key.m, key.k, key.seed)


@lru_cache(maxsize=1)
def _shared_importance(m: int, k: int, seed: int) -> ImportanceArray:
    """Return the importance, cached for the next group: groups of one shape follow one another."""
    importance = _importance(m, k, seed)
    importance.flags.writeable = False
    return importance


def _importance(m: int, k: int, seed: int) -> ImportanceArray:
    """Return the importance of random weights (M, K)."""
    return weigh("weights", np.random.default_rng(seed).standard_normal((m, k), np.float32))


def at_equal_importance(cases: Sequence[SweepCase], reference: str) -> list[SweepCase]:
    """Return the cases with the sparsities at which all patterns retain as much importance as a reference.

    The sparsity of a case is replaced by the highest one at which its pattern retains as much importance as
    the pattern `reference` at the original sparsity. Dense cases, cases of patterns with a fixed sparsity
    (such as 2:4) and cases that cannot be pruned stay unchanged. Cases whose pattern cannot retain so much
    are left out.

    Parameters
    ----------
    cases : cases with the sparsities of the reference
    reference : pattern string

    Raises
    ------
    BadInput : the reference is unknown, cannot have a sparsity, or does not fit a matrix
    """
    found: list[SweepCase] = []
    for key, group in groups_of(cases).items():
        canonical = no_taller_than(reference, key.m).canonical
        if key.sparsity is None or key.pattern == canonical:
            found += group
            continue
        wanted = _retained(key._replace(pattern=canonical))
        try:
            sparsity = sparsity_retaining(parse_pattern(key.pattern), importance_of_group(key), wanted)
        except BadInput:
            sparsity = key.sparsity
        found += [] if sparsity is None else [replace(case, sparsity=sparsity) for case in group]
    return list(dict.fromkeys(found))


@lru_cache(maxsize=64)
def _retained(key: GroupKey) -> float:
    """Return the share of the importance that a group's pattern retains at the group's sparsity.

    The share is cached, since several patterns are compared with the same reference.
    """
    pattern, importance = parse_pattern(key.pattern), importance_of_group(key)
    target_sparsity = sparsity_for(pattern, key.sparsity, natural=False)
    return retained_importance(importance, pattern.prune({"": importance}, target_sparsity)[""])

"""Is a mistake noticed? A kernel that was made wrong must not pass in every order of its threads."""

import re
from collections.abc import Callable, Iterable

from tests.kernels.cuda.on_cpu.on_cpu import EmulationError

__all__ = ["assert_noticed"]


def assert_noticed(check: Callable[[int], None], message: str, seeds: Iterable[int]) -> None:
    """`check(seed)` must fail for one of `seeds`, and the first failure must say what `message` matches.

    A race is not lost in every order, so that one seed says little.
    """
    said = next(filter(None, (_failure(check, seed) for seed in seeds)), "nothing")
    assert re.search(message, said), f"noticed: {said}"


def _failure(check: Callable[[int], None], seed: int) -> str:
    """What was noticed, empty if all was well."""
    try:
        check(seed)
    except (AssertionError, EmulationError) as noticed:
        return f"seed {seed}: {noticed}"
    return ""

"""Tokens per expert: balanced, random, or skewed by a power law.

    balanced       every expert has the same number of tokens, within one
    random         each token draws its experts uniformly: the tokens of an expert are binomial
    power-law:A    loads x with density in proportion to x^-A, from 1 to 0.8 of the tokens (0.01 to 2 if the
                   experts are at least as many as the places): evenly spaced quantiles, scaled to their
                   sum

Power laws of 1.01 and 1.2 are those of published tables (AIConfigurator), which draw the loads at random: the
quantiles are the expectation of each load.
"""

from functools import lru_cache
from math import lgamma, log

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput

DEFAULT_ROUTING = "power-law:1.01"
"""Routing of models unless another one is requested. Trained routers are skewed: 16 tokens of Qwen3-30B-A3B
then reach 66 of its 128 experts, and 83 with uniform draws."""
Loads = npt.NDArray[np.float64]
LEAST_EXPONENT, MOST_EXPONENT = 0.01, 10.0
"""Accepted exponents of a power law. Kind: choice, published tables use 1.01 and 1.2."""
FEWEST_EXACT = 1 << 14
"""Tokens up to which the binomial distribution is summed. Kind: choice, above it the loads differ by less
than a percent."""


def check_routing(routing: str) -> str:
    """Return the routing. Raise BadInput unless it is one of those of this module's head."""
    name, _, exponent = routing.partition(":")
    if routing in ("random", "balanced"):
        return routing
    try:
        value = float(exponent)
    except ValueError:
        value = 0.0
    if name != "power-law" or not LEAST_EXPONENT <= value <= MOST_EXPONENT:
        raise BadInput(f"routing must be random, balanced or like power-law:1.2, got {routing!r:.40}")
    return routing


@lru_cache(maxsize=4096)
def expert_loads(experts: int, per_token: int, tokens: int, routing: str = DEFAULT_ROUTING) -> Loads:
    """Return the tokens of each expert, ascending; the sum is `per_token` * `tokens`.

    For `random` these are the quantiles of the binomial distribution of the tokens of one expert.

    Raises
    ------
    BadInput : more experts per token than experts, or an unknown routing
    """
    if not 1 <= per_token <= experts:
        raise BadInput(f"experts per token must be 1 to the {experts} experts, got {per_token}")
    check_routing(routing)
    if routing == "balanced":
        each, rest = divmod(per_token * tokens, experts)
        return np.repeat([float(each), each + 1.0], [experts - rest, rest])
    if routing == "random":
        loads = _binomial_quantiles(experts, per_token, tokens)
    else:
        loads = _power_law_quantiles(experts, per_token, tokens, float(routing.partition(":")[2]))
    return _with_sum(loads, per_token * tokens, tokens)


def _binomial_quantiles(experts: int, per_token: int, tokens: int) -> Loads:
    share = per_token / experts
    middle = (np.arange(experts) + 0.5) / experts
    if tokens > FEWEST_EXACT:
        return np.full(experts, np.round(share * tokens))
    spread = 12 * (share * (1 - share) * tokens) ** 0.5 + 12
    counts = range(max(int(share * tokens - spread), 0), min(int(share * tokens + spread), tokens) + 1)
    if share == 1.0:
        return np.full(experts, float(tokens))
    # Logarithm of choose(tokens, c) * share^c * (1 - share)^(tokens - c)
    chance = [
        lgamma(tokens + 1)
        - lgamma(c + 1)
        - lgamma(tokens - c + 1)
        + c * log(share)
        + (tokens - c) * log(1.0 - share)
        for c in counts
    ]
    found = np.searchsorted(np.cumsum(np.exp(chance)), middle)
    return np.asarray(counts, np.float64)[np.minimum(found, len(counts) - 1)]


def _power_law_quantiles(experts: int, per_token: int, tokens: int, exponent: float) -> Loads:
    places = per_token * tokens
    low, high = (1.0, max(0.8 * tokens, 1.0)) if places > experts else (0.01, 2.0)
    middle, power = (np.arange(experts) + 0.5) / experts, 1.0 - exponent
    if abs(power) < 1e-9:
        loads = low * (high / low) ** middle
    else:
        loads = ((high**power - low**power) * middle + low**power) ** (1.0 / power)
    return np.asarray(np.minimum(np.round(loads / loads.sum() * places), tokens))


def _with_sum(loads: Loads, total: int, most: int) -> Loads:
    """Return whole loads with the given sum: the smallest ones are raised, or the largest lowered."""
    found = np.sort(loads)
    missing = round(total - found.sum())
    while missing > 0:
        # Raise the smallest loads together to the level at which the rest is spent
        count = int(np.searchsorted(found, found[0], side="right"))
        step = min((found[count] if count < found.size else most) - found[0], max(missing // count, 1))
        raised = min(count, missing)
        found[:raised] += step
        missing -= round(raised * step)
        found = np.sort(found)
    while missing < 0:
        count = found.size - int(np.searchsorted(found, found[-1]))
        step = min(found[-1] - (found[-count - 1] if count < found.size else 0.0), max(-missing // count, 1))
        lowered = min(count, -missing)
        found[found.size - lowered :] -= step
        missing += round(lowered * step)
        found = np.sort(found)
    return found

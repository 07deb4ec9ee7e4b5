"""Number of tokens of each expert (its load): balanced, random, or skewed by a power law.

    balanced       all loads are equal, within one token
    random         each token draws its experts uniformly, so that loads have a binomial distribution
    power-law:A    loads x have a density proportional to x^-A, from x = 1 to 0.8 times the tokens (from 0.01
                   to 2 if there are at least as many experts as (token, expert) pairs)

The loads are evenly spaced quantiles of the distribution, adjusted to the required sum. Published tables
(AIConfigurator) use power laws with A = 1.01 and 1.2 and draw the loads at random; the quantiles represent
the expectation of each load.
"""

from functools import lru_cache
from math import lgamma, log

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput

DEFAULT_ROUTING = "power-law:1.01"
"""Routing of models unless another one is requested. Trained routers are skewed: with this routing, 16 tokens
of Qwen3-30B-A3B reach 66 of its 128 experts; with uniform draws they would reach 83."""
Loads = npt.NDArray[np.float64]
LEAST_EXPONENT, MOST_EXPONENT = 0.01, 10.0
"""Accepted exponents of a power law. Kind: choice, published tables use 1.01 and 1.2."""
FEWEST_EXACT = 1 << 14
"""Tokens up to which the binomial distribution is summed. Kind: choice, above it the loads differ by less
than a percent."""


def check_routing(routing: str) -> str:
    """Return `routing`; raise BadInput unless it is `balanced`, `random` or `power-law:A` with a valid A."""
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
    """Return the number of tokens of each expert, (experts,) float64, ascending.

    The sum is `per_token` * `tokens`. The module's docstring describes the distributions.

    Parameters
    ----------
    per_token : number of experts of a token
    routing : `balanced`, `random` or e.g. `power-law:1.2`

    Raises
    ------
    BadInput : `per_token` is not between 1 and `experts`, or the routing is unknown
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
    """Return the quantiles (i + 0.5) / experts of the binomial distribution of an expert's tokens.

    Above `FEWEST_EXACT` tokens, where loads differ by less than a percent, all loads are the mean.
    """
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
    """Return the quantiles (i + 0.5) / experts of the truncated power law, scaled to the number of pairs.

    With density x^-A on [low, high], quantile u is (low^(1-A) + u (high^(1-A) - low^(1-A)))^(1/(1-A)),
    and low (high / low)^u for A = 1.
    """
    places = per_token * tokens
    low, high = (1.0, max(0.8 * tokens, 1.0)) if places > experts else (0.01, 2.0)
    middle, power = (np.arange(experts) + 0.5) / experts, 1.0 - exponent
    if abs(power) < 1e-9:
        loads = low * (high / low) ** middle
    else:
        loads = ((high**power - low**power) * middle + low**power) ** (1.0 / power)
    return np.asarray(np.minimum(np.round(loads / loads.sum() * places), tokens))


def _with_sum(loads: Loads, total: int, most: int) -> Loads:
    """Return integer loads with the sum `total`: raise the smallest loads, or lower the largest ones."""
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

"""`two-part`: where the line between tiles and a sparse remainder lies, by predicted time.

All choices keep the same; they differ in which columns of a tile are multiplied whole. The closed-form model
ranks them: a remainder is slow by the element, a column of few elements wastes the tensor cores. For dense
blocks the pruner itself asks how long its parts take (`patterns.dense_block_pattern.cheaper_parts`).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from prunecast.choice import SEARCHED, PrunedMap, fastest_plan
from prunecast.codesign.engines import Engine
from prunecast.hardware import GpuSpec
from prunecast.kernels import KERNELS, KernelPlan
from prunecast.kernels.two_part import TwoPartPlan, plan_two_part
from prunecast.patterns import ElementMap, NestedMap, TileMap, parse_pattern
from prunecast.patterns.dense_block_pattern import cheaper_parts
from prunecast.patterns.element_map import element_map_from_mask
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.tile_element import TwoParts, split_parts

HEIGHT = 128
"""Rows of a tile where the pattern has no height."""

LEAST_SHARES = (1.0, 0.5, 0.25, 0.1, 0.03, 0.0)
"""Shares of a tile's rows from which a column counts as whole."""


def plan_in_two(parts: TwoParts, n: int, dtype: str, gpu: GpuSpec, *, most: int | None = None) -> TwoPartPlan:
    """The plans of both parts, the tiles' in the config that the closed-form model finds fastest.

    Parameters
    ----------
    most : configs that are planned at most
    """
    return plan_two_part(
        parts, n, dtype, gpu, lambda: fastest_plan("stspmm", parts.tiles, n, dtype, gpu, most=most)
    )


class _Choice(NamedTuple):
    seconds: float
    launches: tuple[KernelPlan, ...]


def launches_in_two(kept: PrunedMap | TwoParts, n: int, dtype: str, engine: Engine) -> tuple[KernelPlan, ...]:
    """Launches of the fastest split of what is kept; parts that are split already stay as they are.

    Parameters
    ----------
    kept : its pattern's height is that of the tiles
    n, dtype : tokens and format
    engine : of the closed-form model, whatever predicts the outcome

    Raises
    ------
    BadInput : as `plan_in_two`

    """
    if isinstance(kept, TwoParts):
        return plan_in_two(kept, n, dtype, engine.gpu).launches
    if isinstance(kept, TileMap):
        nothing = element_map_from_mask(np.zeros((kept.m, kept.k), dtype=np.bool_), kept.pattern)
        return plan_in_two(TwoParts(kept, nothing), n, dtype, engine.gpu).launches
    elements = kept.inner if isinstance(kept, NestedMap) else kept
    choices = _splits(elements, n, dtype, engine)
    return min(choices, key=lambda choice: choice.seconds).launches


def _splits(elements: ElementMap, n: int, dtype: str, engine: Engine) -> list[_Choice]:
    height = min(parse_pattern(elements.pattern).parameters.get("height", HEIGHT), elements.m)
    choices = []
    for share in LEAST_SHARES:
        parts = split_parts(elements, height=height, least_share=share)
        launches = plan_in_two(parts, n, dtype, engine.gpu, most=SEARCHED).launches
        choices.append(_Choice(sum(engine.once(plan).seconds for plan in launches), launches))
    return choices


def blocks_in_two(
    importance: ImportanceArray, sparsity: float, counts: Sequence[int], n: int, dtype: str, engine: Engine
) -> TwoParts:
    """Dense blocks and leftovers that retain the most importance per predicted time."""

    def seconds(parts: TwoParts) -> float:
        launches = plan_in_two(parts, n, dtype, engine.gpu, most=SEARCHED).launches
        return sum(engine.once(plan).seconds for plan in launches)

    return cheaper_parts(importance, sparsity, seconds, counts=counts)


def remainder_note(launches: tuple[KernelPlan, ...], kept: PrunedMap | TwoParts) -> str:
    """How much of what is kept the tiles leave to the sparse kernel."""
    rest = sum(plan.density for plan in launches if KERNELS[plan.kernel].runs_any_mask)
    return f"two-part: {rest / kept.density:.1%} of the kept weights in the sparse remainder"

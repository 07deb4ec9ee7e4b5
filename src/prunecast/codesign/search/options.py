"""`Option`: one way to run a layer; `menu_of` makes the numbers that allocation works on."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from prunecast.codesign.search.allocation import Menu
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.tile_map import MaskArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One way to run a layer.

    Parameters
    ----------
    pattern : pattern string that the layer is pruned to; `dense` for none
    sparsity : what the pattern is told; None for patterns with a sparsity of their own
    kernel : what runs it; where passes of a workload have their own, all of them with `+` between
    seconds : predicted time
    importance : what is retained
    kept : weights kept
    """

    pattern: str
    sparsity: float | None
    kernel: str
    seconds: float
    importance: float
    kept: int

    def kernels(self, passes: int) -> tuple[str, ...]:
        """The kernel of each of so many passes."""
        return kernels_of_passes(self.kernel, passes)

    @property
    def run_as(self) -> tuple[str, str]:
        """Kernel and pattern: what a ratio of seen to expected time is a ratio of."""
        return self.kernel, self.pattern


def menu_of(options: Sequence[Option], scales: Mapping[tuple[str, str], float]) -> Menu:
    """The options as arrays; times are multiplied with kernel, pattern -> `scales`, 1 where there is none."""
    factors = np.array([scales.get(option.run_as, 1.0) for option in options])
    return Menu(
        np.array([option.seconds for option in options]) * factors,
        np.array([option.importance for option in options], dtype=np.float64),
        np.array([option.kept for option in options], dtype=np.float64),
    )


def kernels_of_passes(kernel: str, passes: int) -> tuple[str, ...]:
    """The kernel of each of so many passes, from what `joined` makes of them."""
    own = tuple(kernel.split("+"))
    return own if len(own) == passes else own * passes


def joined(kernels: Sequence[str]) -> str:
    """One name for the kernels of all passes."""
    return kernels[0] if len(set(kernels)) == 1 else "+".join(kernels)


def mixed_options(menus: Sequence[tuple[float, Sequence[Option]]], copies: int) -> tuple[Option, ...]:
    """One menu for all passes: what every pass can run, with each of its kernels there.

    Parameters
    ----------
    menus : for each pass how often it runs the layer, and its options, dense first
    copies : matrices alike that the layer stands for
    """
    first = dict.fromkeys(_way(option) for option in menus[0][1])
    by_way = [_by_way(options) for _, options in menus]
    return tuple(
        replace(
            chosen[0],
            kernel=joined([option.kernel for option in chosen]),
            seconds=sum(times * option.seconds for (times, _), option in zip(menus, chosen, strict=True)),
            importance=copies * chosen[0].importance,
            kept=copies * chosen[0].kept,
        )
        for way in first
        for chosen in itertools.product(*(options.get(way, ()) for options in by_way))
    )


def _way(option: Option) -> tuple[str, float | None, int]:
    return option.pattern, option.sparsity, option.kept


def _by_way(options: Sequence[Option]) -> dict[tuple[str, float | None, int], list[Option]]:
    found: dict[tuple[str, float | None, int], list[Option]] = {}
    for option in options:
        found.setdefault(_way(option), []).append(option)
    return found


def retained(importance: ImportanceArray, mask: MaskArray) -> float:
    """Sum over what a mask (M, K) keeps; a product is several times faster than a sum under a mask."""
    return float((importance * mask).sum(dtype=np.float64))

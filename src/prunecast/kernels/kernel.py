"""`Kernel`: what the rest of the project knows about a kernel. One record in each kernel's folder.

Nothing outside `prunecast.kernels` compares names of kernels: what they differ in is an attribute here.

`LaunchTraits` is what a kernel knows of its launches that a plan does not say; `ItemTimes` what work items
of a config take of an SM, by which configs are ranked before they are planned.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.hardware.costs import Costs, load_costs
from prunecast.hardware.spec import GpuSpec
from prunecast.patterns.element_map import ElementMap
from prunecast.patterns.pattern import Kept
from prunecast.patterns.tile_map import TileMap
from prunecast.plan.kernel_plan import KernelPlan
from prunecast.plan.program import WarpProgram


class ItemTimes(NamedTuple):
    """Cycles and bytes of the items of one config: one item for each tile and token range."""

    alone: npt.NDArray[np.float64]
    """(tiles,) SM cycles of an item whose block has the SM to itself."""
    pipe: npt.NDArray[np.float64]
    """(tiles,) SM cycles that the SM's busiest pipe works for an item."""
    ranges: int
    """Token ranges, each an item of every tile."""
    slots: int
    """Blocks that fit on an SM."""
    weight_bytes: float
    """Bytes of packed weights, which DRAM delivers once."""
    read_bytes: float
    """Bytes of weights and B that blocks read from L2."""
    once: float = 0.0
    """SM cycles of a persistent block beside its items; 0 where every item is a block."""
    prologue: float = 0.0
    """SM cycles of `once` that lie under the preceding launch where that leaves SMs."""
    fix_up: float | None = None
    """SM cycles to write, or to read, the partial sums of a split-K slice; None where tiles are not split."""
    co_resident: bool = False
    """Under PDL blocks find room beside those of the preceding launch, on SMs that take as many as fit."""


class LaunchTraits(NamedTuple):
    """What a kernel knows of the launches of one plan on one GPU."""

    co_resident: bool = False
    """Under PDL blocks of the next launch find room beside those of this one, and each has one item."""
    registers_per_thread: int = 0
    """Registers of a thread as compiled for the GPU; 0 where they are what the plan says."""
    cycles_per_column: float = 0.0
    """Cycles of a block per kept column, by which blocks of unequal tiles end apart."""
    prologue: Callable[[float], tuple[WarpProgram, ...]] | None = None
    """Programs if such a share of a launch's blocks has run its prologue when the preceding launch ends; None
    where that changes none."""
    b_in_l2: bool = False
    """Weights are read to be evicted first, so that L2 keeps B."""
    other_launches_s: float = 0.0
    """Seconds of what a library launches besides this kernel."""


class Entry(NamedTuple):
    """A subclass of `device.operator.Operator`, loaded when it is used."""

    module: str
    name: str
    least: int = 90
    """Compute capability times ten from which it runs."""
    dtypes: tuple[str, ...] = ("fp16", "bf16")


class Sources(NamedTuple):
    """The CUDA sources of a kernel, by which recorded runs tell its builds."""

    name: str
    """Name of the sources in headers of recorded runs."""
    folders: tuple[str, ...]
    """Folders of `prunecast/kernels`: the kernel's own, and those whose headers it includes."""


def _more_than_one_launch(*_: object, **__: object) -> KernelPlan:
    raise BadInput("more than one launch, so no plan of its own")


def _only_one_config(*_: object, **__: object) -> Iterable[Any]:
    return ()


def _no_traits(plan: KernelPlan, gpu: GpuSpec) -> LaunchTraits:
    return LaunchTraits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One kernel, or two that are launched one behind the other.

    Parameters
    ----------
    name : in tables, on the command line and in `KernelPlan.kernel`
    meaning : one line for help texts and pages
    takes : the map that the planner multiplies; None for the dense product, which takes (m, k)
    natural_pattern : canonical pattern that the kernel is made for, used where none is asked for
    keeps : kinds of patterns (by what they keep) that it runs
    families : families, or whole canonical patterns, that it runs besides
    not_families : families that it does not run although `keeps` has their kind
    most_tokens : left out of `all` kernels above so many tokens; None for any number
    on_request : predicted only where the kernel, or a pattern of its `families`, is named
    splits : heavy tiles are split along K and the parts spread over the SMs
    plan : `(m, k, n, dtype, gpu)` or `(map, n, dtype, gpu)`, and one of `configs` if the kernel has them;
        keyword `tiles` where the elements of the map lie inside tiles
    configs : `(map, n, dtype, gpu)` -> configs that fit on the GPU; `str` of each is its short name
    times : `(config, map, n, dtype, gpu)` -> `ItemTimes`, by which configs are ranked; None if there is one
    other_plans : `(plan, config, gpu)` -> further plans of the same product in the config, with other splits
        along K; the closed form tells which is fastest. None where the planner decides alone
    compilers : tensor instruction of a plan -> what compiles it; empty where no CUDA of the project runs it
    sources : its CUDA; None for libraries, and for a kernel of more than one launch
    library : run by the GPU vendor's library, predicted and measured but not compiled
    in_torch : what runs products of models in torch: cuBLAS, and what `prunecast.torch.sparsify` launches
    gates_in_torch : a gated unit between its products is the first one's epilogue there
    parts : names of the kernels that are launched one behind the other; empty for a kernel of one launch
    writes_all_rows : also rows of C in which nothing is kept; else a second launch writes them
    unaligned_tokens : up to so many tokens, rows of B and C may begin anywhere; above, copies are padded
    costs : package with files `costs/sm_*.toml`; empty where the kernel has none
    traits : `(plan, gpu)` -> what the kernel knows of its launches that a plan does not say
    """

    name: str
    meaning: str
    takes: type[TileMap] | type[ElementMap] | None
    natural_pattern: str
    keeps: tuple[Kept, ...] = ()
    families: tuple[str, ...] = ()
    not_families: tuple[str, ...] = ("dense",)
    most_tokens: int | None = None
    on_request: bool = False
    splits: bool = False
    plan: Callable[..., KernelPlan] = _more_than_one_launch
    configs: Callable[..., Iterable[Any]] = _only_one_config
    times: Callable[..., ItemTimes] | None = None
    other_plans: Callable[[KernelPlan, Any, GpuSpec], list[KernelPlan]] | None = None
    compilers: Mapping[str, Entry] = field(default_factory=dict)
    sources: Sources | None = None
    library: bool = False
    in_torch: bool = False
    gates_in_torch: bool = True
    parts: tuple[str, ...] = ()
    writes_all_rows: bool = False
    unaligned_tokens: int = 0
    costs: str = ""
    traits: Callable[[KernelPlan, GpuSpec], LaunchTraits] = _no_traits

    @property
    def prunes(self) -> bool:
        """Whether it multiplies less than all of A."""
        return self.takes is not None

    @property
    def runs_any_mask(self) -> bool:
        """Whether it takes the elements of every mask, tiles included, at whatever cost."""
        return self.takes is ElementMap and "tiles" in self.keeps

    def why_predicted_only(self, plan: KernelPlan, gpu: GpuSpec) -> str | None:
        """Why no kernel runs a plan of this one on the GPU; None where one does, or is made of others."""
        if self.library or not self.compilers:
            return None
        entry = self.compilers.get(plan.tensor)
        if entry is None or plan.dtype not in entry.dtypes:
            return f"predicted only: {self.name} has no kernel in {plan.dtype}"
        if gpu.compute_capability < entry.least:
            return f"predicted only: {self.name} has no kernel below compute capability {entry.least / 10}"
        return None

    def costs_on(self, gpu: GpuSpec) -> Costs | None:
        """Costs on the GPU's architecture, None where the kernel has none."""
        return load_costs(self.costs, gpu.compute_capability) if self.costs else None

    def guessed_costs(self, gpu: GpuSpec) -> float:
        """Share of these costs that are guesses, as those carried over from another architecture are."""
        costs = self.costs_on(gpu)
        return costs.guessed_share if costs else 0.0

    def runs(self, pattern: str, keeps: Kept) -> bool:
        """Whether it runs a canonical pattern of this kind."""
        family = pattern.split(":")[0]
        named = pattern in self.families or family in self.families
        return named or (keeps in self.keeps and family not in self.not_families)

"""`ModelSearch`: the options of a model's layers, and the predictions of those that were tried."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np

from prunecast.choice import PrunedMap
from prunecast.codesign.search.allocation import OptionValues
from prunecast.codesign.search.layer_options import layer_options
from prunecast.codesign.search.option_times import SUMMED_HEIGHT, KeptLayer, OptionTimes, sums_say_all
from prunecast.codesign.search.options import (
    Option,
    Options,
    RunAs,
    kernels_of_passes,
    mixed_options,
    sparse_layers,
)
from prunecast.codesign.search.targets import ChosenMember, Limits, Targets
from prunecast.errors import BadInput
from prunecast.kernels import DTYPE_BYTES, KERNELS, KernelPlan
from prunecast.models import packed_bytes
from prunecast.patterns import Pattern, TileSums, parse_pattern
from prunecast.patterns.element_map import retained_sum
from prunecast.patterns.tile_map import MaskArray
from prunecast.workload.engines import Engine, Outcome, Progress, silent
from prunecast.workload.expert_launches import share_of
from prunecast.workload.graph import ModelTime
from prunecast.workload.graph.model_time import PassTimes, mixed_time
from prunecast.workload.memory import PassMemory, pass_memory
from prunecast.workload.random_weights import MOST_REMEMBERED_WEIGHTS
from prunecast.workload.two_parts import launches_in_two
from prunecast.workload.workload import Workload, experts_of, grids_of

FAMILIES = ("atp", "guided", "shuffled", "dense-block", "2:4", "tvw")
MOST_SPARSITY = 0.95
"""Highest sparsity of a layer without its own cap. Without this limit, maximising the sum of magnitudes would
remove nearly all weights of layers that are slow for their size, and the model would lose its accuracy."""
MOST_GUIDED_LAYERS = 48
"""Models with more matrices do not use the families in `SLOW`, which need seconds for each option."""
SLOW = ("guided", "shuffled", "dense-block")
OFF_GRID = ("2:4", "tvw")
"""Pattern families that convolutions cannot have in torch, since no kernel supports them."""
_Key = TypeVar("_Key")
_Result = TypeVar("_Result")


class Tried(NamedTuple):
    """The result of pruning a layer to an option and predicting its time."""

    seconds: float
    importance: float
    kept: int
    weight_bytes: float
    """Bytes of the packed weights of all copies of the layer. If passes use different kernels, the packed
    weights of each kernel are counted."""


class SparseLayers(NamedTuple):
    """The layers that run a sparse kernel, which determine the time of the rest of the model."""

    names: frozenset[str]
    unfused: frozenset[str] = frozenset()
    """Layers in `names` whose kernels cannot fuse gated units or residual adds into epilogues."""


DENSE = SparseLayers(frozenset())
"""The dense model."""


class Origin(NamedTuple):
    """Origin of the weights of a search, and settings of its predictions; recipes store them."""

    source: str = "arrays"
    """Path of the weights or name of the standard model; `arrays` for matrices in memory."""
    has_weights: bool = True
    """True if the weights were read; False if they are drawn at random."""
    workload: str | None = None
    runtime: str = "engine"
    criterion: str = "magnitude"
    """Criterion of the importance: `magnitude`, or `inputs` if it is weighted by input statistics."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelSearch:
    """The options of the layers of a model, and the results of those that have been tried.

    Parameters
    ----------
    workload : the layers to prune, and the passes that run them
    engine : predicts the time of layers after they have been pruned
    dtype : number format of A, B and C
    families : pattern families of the options
    caps : layer -> highest sparsity that it may have
    most_sparsity : highest sparsity of the layers that `caps` does not name
    progress : callback for the progress of long stages
    origin : origin of the weights, which recipes store
    options : layer -> options, filled by `prepare`
    saved_by_dense : layer -> seconds of the transposes that are not needed if it is dense, filled by
        `prepare`
    """

    workload: Workload
    engine: Engine
    dtype: str
    families: Sequence[str] = FAMILIES
    caps: Mapping[str, float] = field(default_factory=dict)
    most_sparsity: float = MOST_SPARSITY
    progress: Progress = silent
    origin: Origin = field(default_factory=Origin)
    options: dict[str, Options] = field(default_factory=dict)
    _tried: dict[tuple[str, Option], Tried] = field(default_factory=dict)
    _first: dict[str, str] = field(default_factory=dict)
    """Layer -> the first layer with the same weights and passes, whose options and results it shares."""
    _of_members: dict[tuple[str, Option], tuple[ChosenMember, ...]] = field(default_factory=dict)
    _fixed: dict[str, float] = field(default_factory=dict)
    saved_by_dense: dict[str, float] = field(default_factory=dict)
    _sums: dict[str, TileSums] = field(default_factory=dict)
    _masks: dict[str, tuple[tuple[str, float | None, str], MaskArray]] = field(default_factory=dict)
    _packed: dict[tuple[int, int], float] = field(default_factory=dict)
    _times: OptionTimes = field(init=False)

    def __post_init__(self) -> None:
        first = self._first_of_shape()
        times = OptionTimes(
            engine=self.engine,
            dtype=self.dtype,
            typical={shape: partial(self.workload.importance, name) for shape, name in first.items()},
            grids=grids_of(self.workload),
            experts=experts_of(self.workload),
            in_torch=self.workload.runtime == "torch",
        )
        object.__setattr__(self, "_times", times)

    def prepare(self) -> None:
        """Compute the options of all layers and store them in `options`.

        Raises
        ------
        BadInput : `caps` names an unknown layer
        """
        unknown = sorted(set(self.caps) - set(self.workload.layers))
        if unknown:
            raise BadInput(
                f"a cap names {unknown[0]!r}, which is not among the {len(self.workload.layers)} layers"
            )
        matrices = sum(len(layer.members) or 1 for layer in self.workload.layers.values())
        few = matrices <= MOST_GUIDED_LAYERS
        families = [family for family in self.families if few or family not in SLOW]
        self._first.update(self._first_alike())

        def make(name: str) -> Options:
            importance = self.workload.importance(name)
            sums = TileSums.of(importance, SUMMED_HEIGHT)
            self._sums[name] = sums
            self._times.keep_sums(sums)
            most = self.caps.get(name, self.most_sparsity) + 1e-9
            offered = {}
            for n in {n for _, n in self._passes_of(name)}:
                own = self._families_of(name, n, families)
                every = layer_options(importance, sums, n, self._times, families=own)
                allowed = 1.0 - every.kept / importance.size <= most
                fits = np.array([self._fits(name, pattern) for _, pattern in every.runs])[every.run]
                offered[n] = every.where(allowed & fits)
            passes = [(runs, offered[n]) for runs, n in self._passes_of(name)]
            return mixed_options(passes, self.workload.layers[name].count)

        # The first layer of a shape fills the caches of sums and times: no two threads compute the same ones,
        # and the other layers of the shape get the times of the first one
        made = self._for_all("options by shape", make, self._first_of_shape().values())
        others = [name for name in dict.fromkeys(self._first.values()) if name not in made]
        made |= self._for_all("options", make, others)
        made = {name: made[self._first[name]] for name in self.workload.layers}
        self.options.update(made)
        self._fixed.update(self._dense())
        self.saved_by_dense.update(self._whole.savings_of_dense(self._fixed, frozenset(self.options)))

    def _first_of_shape(self) -> dict[tuple[int, int], str]:
        """Return a dict from a shape (M, K) to the name of the first layer with it."""
        found: dict[tuple[int, int], str] = {}
        for name, layer in self.workload.layers.items():
            found.setdefault(layer.shape, name)
        return found

    def _first_alike(self) -> dict[str, str]:
        """Return layer -> the first layer with the same weights, passes and cap.

        Only layers of large standard models share weights; each layer of a file has its own.
        """
        first: dict[tuple[object, ...], str] = {}
        found = {}
        for name, layer in self.workload.layers.items():
            loads = tuple(id(each.load) for each in layer.members or (layer,))
            passes = (layer.tokens, *self._passes_of(name), layer.count, layer.convolution)
            found[name] = first.setdefault((loads, passes, self.caps.get(name)), name)
        return found

    def _families_of(self, name: str, n: int, families: Sequence[str]) -> Sequence[str]:
        """Return the pattern families that a layer can have for `n` tokens.

        In torch, a convolution can have no 2:4 or TVW; without a grid of input images it stays dense.
        """
        layer = self.workload.layers[name]
        if layer.convolution is None or self.workload.runtime != "torch":
            return families
        has_grid = (*layer.shape, n) in self._times.grids
        return [family for family in families if has_grid and family not in OFF_GRID]

    @property
    def importance(self) -> float:
        """Summed importance of all layers before pruning."""
        return sum(options[0].importance for options in self.options.values())

    @property
    def in_planes(self) -> bool:
        """True if torch runs the model's convolutions on images with zeros around them (planes)."""
        return bool(self._times.grids)

    def with_options(self, options: dict[str, Options]) -> "ModelSearch":
        """Return a search of the same model with other options; both searches share their results.

        Parameters
        ----------
        options : layer -> options, the dense one first
        """
        return replace(self, options=options)

    def option_values(self, scales: Mapping[str, Mapping[RunAs, float]]) -> list[OptionValues]:
        """Return the time, importance and kept weights of the options of each layer, as arrays.

        A dense product can transpose its tensors at no cost. The time of the transposes that a dense layer
        thereby saves is subtracted from the time of its dense option; `rest_seconds` adds it again.

        Parameters
        ----------
        scales : layer -> (kernel, pattern) -> factor for the time; missing factors are 1
        """
        found = [options.values(scales.get(name, {})) for name, options in self.options.items()]
        for name, values in zip(self.options, found, strict=True):
            values.seconds[0] -= self.saved_by_dense.get(name, 0.0)
        return found

    def rest_seconds(self, sparse: SparseLayers) -> float:
        """Return the seconds of the rest of the model (without prunable layers) for given sparse layers.

        For each prunable layer that stays dense, the time of the transposes that it saves is added, because
        `option_values` subtracts this time from the layer's dense option. The result plus the times of the
        chosen options is thus the time of the model.
        """
        saved = sum(self.saved_by_dense.get(name, 0.0) for name in self.options if name not in sparse.names)
        return self.total(dict.fromkeys(self.options, 0.0), sparse) + saved

    def sparse(self, choice: Mapping[str, int]) -> SparseLayers:
        """Return the sparse layers of a choice (layer -> index of its option)."""
        names = sparse_layers(choice)
        kernels = {name: self.options[name].run_of(choice[name]).kernel.split("+") for name in names}
        fused = {name for name in names if all(KERNELS[each].fuses_in_torch for each in kernels[name])}
        return SparseLayers(names, names - fused)

    @property
    def all_sparse(self) -> SparseLayers:
        """All prunable layers, with kernels that fuse gated units and residual adds into epilogues."""
        return SparseLayers(frozenset(self.options))

    def realise(self, choice: dict[str, int]) -> dict[str, Tried]:
        """Prune each layer to its chosen option, plan and predict it, and return layer -> result.

        Parameters
        ----------
        choice : layer -> index of its option
        """
        chosen = {name: (self._first[name], self.options[name][place]) for name, place in choice.items()}
        missing = dict.fromkeys(wanted for wanted in chosen.values() if wanted not in self._tried)
        self._tried.update(self._for_all("pruning", lambda wanted: self._try(*wanted), missing))
        return {name: self._tried[wanted] for name, wanted in chosen.items()}

    def members(self, name: str, option: Option) -> tuple[ChosenMember, ...]:
        """Return the result of each matrix, for a layer whose matrices share a launch; otherwise empty."""
        members = self.workload.layers[name].members
        if option.pattern == "dense" or not members:
            return tuple(ChosenMember(each.name, each.shape[0], 0.0, 1.0) for each in members)
        key = self._first[name], option
        if key not in self._of_members:
            ends = np.cumsum([each.shape[0] for each in members])[:-1]
            masks = np.split(self.mask(name, option.pattern, option.sparsity, option.kernel), ends)
            scores = np.split(self.workload.importance(name), ends)
            self._of_members[key] = tuple(
                ChosenMember(
                    "", len(own), 1.0 - mask.mean().item(), retained_sum(own, mask) / float(own.sum())
                )
                for mask, own in zip(masks, scores, strict=True)
            )
        alike = self._of_members[key]
        return tuple(own._replace(layer=each.name) for each, own in zip(members, alike, strict=True))

    def mask(self, name: str, pattern: str, sparsity: float | None, kernel: str) -> MaskArray:
        """Return the mask (M, K) of a layer pruned to a pattern.

        Parameters
        ----------
        kernel : kernel of the option, whose predicted times guide patterns that need times
        """
        asked = pattern, sparsity, kernel
        last = self._masks.get(name)
        if last is not None and last[0] == asked:
            return last[1]
        rule = self._timed(name, parse_pattern(pattern), kernel)
        mask = rule.prune({name: self.workload.importance(name)}, sparsity)[name]
        if self.workload.weights <= MOST_REMEMBERED_WEIGHTS:
            self._masks[name] = asked, mask
        return mask

    def time(self, seconds: Mapping[str, float], sparse: SparseLayers) -> ModelTime | None:
        """Return the end-to-end time of the model; None without a model graph. See `model_time`.

        Parameters
        ----------
        seconds : layer -> its seconds in all passes
        """
        found = self._whole.times({**self._fixed, **seconds}, *sparse)
        return mixed_time(found) if found else None

    def total(self, seconds: Mapping[str, float], sparse: SparseLayers) -> float:
        """Return the end-to-end seconds of the model; without a model graph, the sum of `seconds`."""
        time = self.time(seconds, sparse)
        return sum(seconds.values()) if time is None else time.seconds

    def limits(self, targets: Targets) -> Limits:
        """Return the time and the number of weights to which `targets` limit the model."""
        return targets.limits(self.total(self.dense_seconds(), DENSE), self.workload.weights)

    def dense_seconds(self) -> dict[str, float]:
        """Return layer -> seconds of its dense product in all passes, for the layers that may be pruned."""
        return {name: self._fixed[name] for name in self.options}

    def seconds(
        self, name: str, kernels: Sequence[str], kept: PrunedMap, run: Callable[[KernelPlan], Outcome]
    ) -> float:
        """Return the seconds of a pruned layer, summed over all passes.

        Parameters
        ----------
        kernels : one kernel for each pass in which the layer runs
        kept : sparsity map of the layer (tiles or elements)
        run : predicts a plan
        """
        return sum(
            runs * _share(self._launches(kernel, kept, n), kept.m, lambda plan: run(plan).seconds)
            for (runs, n), kernel in zip(self._passes_of(name), kernels, strict=True)
        )

    def memory(self, weight_bytes: Mapping[str, float]) -> tuple[PassMemory, ...]:
        """Return the memory of each pass whose graph is known.

        Parameters
        ----------
        weight_bytes : layer -> bytes of the weights of all its copies; products without an entry are dense
        """
        each = {name: size / self.workload.layers[name].count for name, size in weight_bytes.items()}
        return tuple(
            pass_memory(graph, run.batch, DTYPE_BYTES[self.dtype], each)
            for run, graph in zip(self.workload.passes, self.workload.graphs, strict=False)
        )

    def fastest(self, name: str, kept: PrunedMap, kernels: Callable[[int], Sequence[str]]) -> tuple[str, ...]:
        """Return the kernel with the least closed-form time for each pass that runs a layer.

        Parameters
        ----------
        kept : sparsity map of the layer (tiles or elements)
        kernels : returns the candidates for a number of tokens
        """

        def seconds(kernel: str, n: int) -> float:
            launches = self._launches(kernel, kept, n)
            return _share(launches, kept.m, lambda plan: self.engine.estimate(plan).seconds)

        return tuple(
            min(kernels(n), key=lambda kernel, n=n: seconds(kernel, n))  # type: ignore[misc]
            for _, n in self._passes_of(name)
        )

    def _launches(self, kernel: str, kept: PrunedMap, n: int) -> tuple[KernelPlan, ...]:
        """Return the launches of a kernel for the sparsity map of a layer and `n` tokens."""
        if KERNELS[kernel].parts:
            return launches_in_two(kept, n, self.dtype, self.engine)
        return (self._times.plan(kernel, kept, n),)

    @property
    def _whole(self) -> PassTimes:
        passes = zip((run.share for run in self.workload.passes), self.workload.graphs, strict=False)
        return PassTimes(tuple(passes), self.engine.gpu, self.engine.conditions, self.dtype)

    def _passes_of(self, name: str) -> list[tuple[float, int]]:
        """Return, for each pass that runs a layer, how often the workload runs it there and its tokens."""
        tokens = self.workload.layers[name].tokens
        return [(self.workload.runs(place, name), n) for place, n in enumerate(tokens) if n]

    def _dense(self) -> dict[str, float]:
        """Return product -> dense seconds in all passes, including products that are never pruned."""
        found: dict[str, float] = {}
        for place in range(len(self.workload.passes)):
            products = self.workload.graphs[place].products if self.workload.graphs else {}
            others = {name: (p.m, p.k, p.n) for name, p in products.items()}
            layers = self.workload.layers.items()
            own = {name: (*layer.shape, n) for name, layer in layers if (n := layer.tokens[place])}
            for name, sizes in {**others, **own}.items():
                seconds = self._times.dense(*sizes)
                found[name] = found.get(name, 0.0) + self.workload.runs(place, name) * seconds
        return found

    def _try(self, name: str, option: Option) -> Tried:
        """Return the result of pruning a layer to an option.

        For 2:4, the estimated seconds, importance and kept weights of `option` are returned without pruning,
        because the time does not depend on which two of four weights are kept.
        """
        if option.pattern == "dense":
            size = DTYPE_BYTES[self.dtype] * option.kept
            return Tried(self._fixed[name], option.importance, option.kept, float(size))
        if option.pattern == "2:4":
            return Tried(option.seconds, option.importance, option.kept, self._two_of_four_bytes(name))
        pattern = self._timed(name, parse_pattern(option.pattern), option.kernel)
        pruned = self._prune(name, pattern, option)
        kernels = kernels_of_passes(option.kernel, len(self._passes_of(name)))
        seconds, forms = 0.0, {}
        for (runs, n), kernel in zip(self._passes_of(name), kernels, strict=True):
            launches = self._launches(kernel, pruned.kept, n)
            seconds += runs * _share(launches, pruned.kept.m, lambda plan: self.engine.run(plan).seconds)
            forms[kernel] = _share(launches, pruned.kept.m, packed_bytes)
        copies = self.workload.layers[name].count
        packed = copies * sum(forms.values())
        return Tried(seconds, copies * pruned.importance, copies * pruned.weights, packed)

    def _two_of_four_bytes(self, name: str) -> float:
        """Return the bytes of a layer packed as 2:4, which do not depend on the weights that are kept."""
        layer = self.workload.layers[name]
        if layer.shape not in self._packed:
            nothing_kept = parse_pattern("2:4").map(np.zeros(layer.shape, dtype=np.bool_))
            _, n = self._passes_of(name)[0]  # the first pass stands for all of them
            launches = self._launches("2:4", nothing_kept, n)
            self._packed[layer.shape] = _share(launches, layer.shape[0], packed_bytes)
        return layer.count * self._packed[layer.shape]

    def _fits(self, name: str, pattern: str) -> bool:
        """Return True if no tile of the pattern spans two of the matrices that the layer stacks."""
        height = 1 if pattern == "dense" else parse_pattern(pattern).parameters.get("height", 1)
        return all(each.shape[0] % height == 0 for each in self.workload.layers[name].members[:-1])

    def _timed(self, name: str, pattern: Pattern, kernel: str) -> Pattern:
        """Return the pattern, guided by the closed-form time over all passes if the pattern needs times."""
        kernels = kernels_of_passes(kernel, len(self._passes_of(name)))
        return pattern.timed_by(lambda _, tiles: self.seconds(name, kernels, tiles, self.engine.estimate))

    def _prune(self, name: str, pattern: Pattern, option: Option) -> KeptLayer:
        """Return the pruned layer.

        If the importance sums of tiles suffice for the pattern, they are used. Otherwise the weights may be
        read again.
        """
        sums = self._sums[name]
        if sums_say_all(pattern, sums):
            return KeptLayer.of_sums(pattern, sums, option.sparsity)
        mask = self.mask(name, option.pattern, option.sparsity, option.kernel)
        return KeptLayer.of_mask(pattern, self.workload.importance(name), mask)

    def _for_all(
        self, stage: str, work: Callable[[_Key], _Result], keys: Iterable[_Key]
    ) -> dict[_Key, _Result]:
        """Return key -> result of `work` for every key, computed with one thread per processor."""
        todo = list(keys)
        done: dict[_Key, _Result] = {}
        if todo:
            self.progress(stage, 0, len(todo))
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            for key, result in zip(todo, pool.map(work, todo), strict=True):
                done[key] = result
                self.progress(stage, len(done), len(todo))
        return done


def _share(launches: Sequence[KernelPlan], m: int, of: Callable[[KernelPlan], float]) -> float:
    """Return the sum of `of` over launches; of a grouped launch, the share of a layer with `m` rows."""
    return sum(share_of(plan, m) * of(plan) for plan in launches)

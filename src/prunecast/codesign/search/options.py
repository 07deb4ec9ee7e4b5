"""`Option`: a pattern, sparsity and kernel for a layer. `Options`: all options of a layer, as arrays."""

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from prunecast.codesign.search.allocation import FloatArray, OptionValues


class RunAs(NamedTuple):
    """Kernel and pattern of an option; the key of a factor that corrects estimated times."""

    kernel: str
    pattern: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A pattern, sparsity and kernel for a layer, with its estimated time and retained importance.

    Parameters
    ----------
    pattern : pattern string to which the layer is pruned; `dense` for none
    sparsity : argument of the pattern; None for patterns with a fixed sparsity
    kernel : name of the kernel; if the passes of a workload use different kernels, their names joined by `+`
    seconds : predicted seconds
    importance : retained importance, the sum of the importance of the kept weights
    kept : number of kept weights
    """

    pattern: str
    sparsity: float | None
    kernel: str
    seconds: float
    importance: float
    kept: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Options(Sequence[Option]):
    """The options of one layer as arrays of shape (options,); the first option is dense.

    Parameters
    ----------
    runs : the different pairs of kernel and pattern
    run : index into `runs` of each option, int64
    sparsity : argument of the pattern, float64; NaN for patterns with a fixed sparsity
    seconds, importance, kept : the fields of `Option`, float64
    """

    runs: tuple[RunAs, ...]
    run: npt.NDArray[np.int64]
    sparsity: FloatArray
    seconds: FloatArray
    importance: FloatArray
    kept: FloatArray

    @classmethod
    def of(
        cls,
        pattern: str,
        seconds: Mapping[str, Any],
        *,
        importance: Any,
        kept: Any,
        sparsity: Any = np.nan,
    ) -> Self:
        """Return the options of one pattern: every kernel at every sparsity.

        Parameters
        ----------
        seconds : kernel -> seconds at each sparsity, (sparsities,) or a number
        importance, kept, sparsity : the fields of `Option` at each sparsity, (sparsities,) or numbers
        """
        times = np.array([np.atleast_1d(own) for own in seconds.values()], dtype=np.float64)
        points = np.repeat(np.arange(times.shape[1]), len(seconds))

        def column(values: Any) -> FloatArray:
            return np.broadcast_to(np.asarray(values, dtype=np.float64), times.shape[1:])[points]

        return cls(
            runs=tuple(RunAs(kernel, pattern) for kernel in seconds),
            run=np.tile(np.arange(len(seconds)), times.shape[1]),
            sparsity=column(sparsity),
            seconds=times.T.ravel(),
            importance=column(importance),
            kept=column(kept),
        )

    @classmethod
    def joined(cls, parts: Iterable["Options"]) -> Self:
        """Concatenate the options of several patterns."""
        every = list(parts)
        starts = np.cumsum([0, *(len(part.runs) for part in every)])
        names = ("sparsity", "seconds", "importance", "kept")
        return cls(
            runs=tuple(itertools.chain.from_iterable(part.runs for part in every)),
            run=np.concatenate([start + part.run for start, part in zip(starts, every, strict=False)]),
            **{name: np.concatenate([getattr(part, name) for part in every]) for name in names},
        )

    def __len__(self) -> int:
        return self.run.size

    def __getitem__(self, place: int) -> Option:  # type: ignore[override]
        kernel, pattern = self.run_of(place)
        sparsity = float(self.sparsity[place])
        return Option(
            pattern=pattern,
            sparsity=None if np.isnan(sparsity) else sparsity,
            kernel=kernel,
            seconds=float(self.seconds[place]),
            importance=float(self.importance[place]),
            kept=int(self.kept[place]),
        )

    def where(self, flags: npt.NDArray[np.bool_]) -> "Options":
        """Return the options for which `flags` (options,) is True."""
        names = ("run", "sparsity", "seconds", "importance", "kept")
        return Options(runs=self.runs, **{name: getattr(self, name)[flags] for name in names})

    def matching(self, patterns: str) -> npt.NDArray[np.bool_]:
        """Return (options,) bool: True where the whole pattern string matches a regular expression."""
        matches = re.compile(patterns).fullmatch
        return np.array([matches(pattern) is not None for _, pattern in self.runs])[self.run]

    def run_of(self, place: int) -> RunAs:
        """Return the kernel and pattern of the option at an index."""
        return self.runs[int(self.run[place])]

    def values(self, scales: Mapping[RunAs, float]) -> OptionValues:
        """Return the values of the options, with times multiplied by the factor of kernel and pattern.

        The factor is 1 for pairs that `scales` lacks.
        """
        factors = np.array([scales.get(run, 1.0) for run in self.runs])
        return OptionValues(self.seconds * factors[self.run], self.importance, self.kept)


def sparse_layers(choice: Mapping[str, int]) -> frozenset[str]:
    """Return the layers whose chosen option is not dense; the dense option has index 0."""
    return frozenset(name for name, place in choice.items() if place)


def kernels_of_passes(kernel: str, passes: int) -> tuple[str, ...]:
    """Return the kernel name of each of `passes` passes from a name that `joined_kernels` returned."""
    own = tuple(kernel.split("+"))
    return own if len(own) == passes else own * passes


def joined_kernels(kernels: Sequence[str]) -> str:
    """Return one name for the kernels of all passes: a common kernel, or all names joined by `+`."""
    return kernels[0] if len(set(kernels)) == 1 else "+".join(kernels)


def mixed_options(passes: Sequence[tuple[float, Options]], copies: int) -> Options:
    """Combine the options of all passes; `seconds` are then sums over the passes.

    An option must be available in every pass. Each combination of the kernels of the passes is an option.

    Parameters
    ----------
    passes : for each pass, the number of times that it runs the layer, and its options, dense first
    copies : number of equal matrices that the layer represents
    """
    rows_of = [_rows_by_point(options) for _, options in passes]
    rows = np.array(
        [rows for key in rows_of[0] for rows in itertools.product(*(own.get(key, ()) for own in rows_of))]
    ).T
    every = [options for _, options in passes]
    # There are few different combinations of runs, so that their names are joined once
    combined = list(zip(*(own.run[of].tolist() for own, of in zip(every, rows, strict=True)), strict=True))
    names = {
        runs: _joined([own.runs[run] for own, run in zip(every, runs, strict=True)])
        for runs in dict.fromkeys(combined)
    }
    places = {name: place for place, name in enumerate(dict.fromkeys(names.values()))}
    first = every[0]
    return Options(
        runs=tuple(places),
        run=np.array([places[names[runs]] for runs in combined]),
        sparsity=first.sparsity[rows[0]],
        seconds=sum(times * options.seconds[own] for own, (times, options) in zip(rows, passes, strict=True)),
        importance=copies * first.importance[rows[0]],
        kept=copies * first.kept[rows[0]],
    )


def _rows_by_point(options: Options) -> dict[tuple[str, float | None, int], list[int]]:
    """Return pattern, sparsity and kept weights -> indices of the options with them, one per kernel."""
    columns = options.run, options.sparsity, options.kept
    found: dict[tuple[str, float | None, int], list[int]] = {}
    for row, (run, sparsity, kept) in enumerate(zip(*(own.tolist() for own in columns), strict=True)):
        # NaN differs from itself, so that it cannot be a key
        key = options.runs[run].pattern, None if math.isnan(sparsity) else sparsity, int(kept)
        found.setdefault(key, []).append(row)
    return found


def _joined(runs: Sequence[RunAs]) -> RunAs:
    return RunAs(joined_kernels([run.kernel for run in runs]), runs[0].pattern)

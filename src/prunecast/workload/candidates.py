"""Kernels that can run a layer, each with the pattern to which its weights are pruned."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from prunecast.errors import BadInput, check_choice
from prunecast.kernels import KERNELS
from prunecast.patterns import PATTERNS, Pattern
from prunecast.patterns.sources import Layer


class Candidate(NamedTuple):
    """A kernel, and the pattern to which weights are pruned for it."""

    kernel: str
    pattern: str
    natural: bool = False
    """True if the pattern is the natural (default) one of the kernel. It is then reduced to fit a layer, and
    patterns with a fixed sparsity, such as 2:4, ignore the requested sparsity."""


def kernels_of(pattern: str) -> tuple[str, ...]:
    """Return the kernels that can run a canonical pattern; kernels designed for its family come first."""
    family = pattern.split(":")[0]
    keeps = PATTERNS[family].keeps if family in PATTERNS else "elements"
    able = [kernel for kernel in KERNELS.values() if kernel.runs(pattern, keeps)]
    able.sort(key=lambda kernel: kernel.natural_pattern.split(":")[0] != family)
    return tuple(kernel.name for kernel in able)


def takes(kernel: str, tokens: int) -> bool:
    """Return True if a kernel supports this number of tokens."""
    most = KERNELS[kernel].most_tokens
    return most is None or tokens <= most


def tile_kernels(tokens: int) -> tuple[str, ...]:
    """Return the kernels that can be the fastest ones for a tile map with this number of tokens."""
    return tuple(kernel for kernel in ("stspmm", "small-n") if takes(kernel, tokens))


def check_has_form(runtime: str | None, weights: object) -> None:
    """Raise BadInput for runtime `torch` with weights that have no known model graph."""
    if runtime == "torch":
        what = f"{weights}"[:80] if isinstance(weights, str | Path) else "matrices"
        wanted = (
            "wanted a standard model, a Hugging Face folder of a transformer whose matrices are all there, "
            "an ONNX file with convolutions, or a module and the size of its images"
        )
        raise BadInput(f"runtime torch is of whole models: {wanted}, got {what}")


def check_rows_stay(pattern: Pattern | None) -> None:
    """Raise BadInput for a pattern whose tiles contain rows that are not neighbours (runtime `torch`).

    C is token-major in torch, so that such rows are stored one element at a time. These stores need 7 times
    the time of the product (MiniLM, H200, 2026-11-23). No prediction contains them.
    """
    if pattern is not None and _moves_rows(pattern.canonical):
        raise BadInput(
            f"runtime torch writes C token-major, where rows from anywhere are slow: wanted a pattern whose"
            f" tiles are of neighbouring rows, got {pattern.canonical}"
        )


def runs_in_torch(pattern: str) -> bool:
    """Return True if torch runs a canonical pattern: a kernel for it exists, and tiles have adjacent rows."""
    is_able = pattern == "zeros" or any(KERNELS[name].in_torch for name in kernels_of(pattern))
    return is_able and not _moves_rows(pattern)


def _moves_rows(pattern: str) -> bool:
    return any(word in pattern for word in ("shuffled", "dense-block"))


def run_in_torch(chosen: Sequence[Candidate], *, asked: bool) -> tuple[Candidate, ...]:
    """Return the candidates whose kernel runs in torch.

    Parameters
    ----------
    asked : True if the user named the kernels. BadInput is then raised for one that does not run in torch
    """
    runs = [name for name, kernel in KERNELS.items() if kernel.in_torch]
    others = [one.kernel for one in chosen if not KERNELS[one.kernel].in_torch]
    if others and asked:
        raise BadInput(f"runtime torch runs {', '.join(runs)}, got the kernel {others[0]}")
    return tuple(one for one in chosen if KERNELS[one.kernel].in_torch)


def candidates(
    kernels: Sequence[str] | str = "all", pattern: str | None = None, tokens: int = 1
) -> tuple[Candidate, ...]:
    """Return the kernels to predict, each with its pattern.

    The dense kernel comes first and is always included, since it is the baseline of speedups. Other kernels
    of dense weights run their own pattern whatever `pattern` is.

    Parameters
    ----------
    kernels : names, or `all` for every kernel that can run `pattern`; without a pattern, `all` omits kernels
        that are opt-in
    pattern : canonical pattern for every kernel, or None for the natural (default) pattern of each kernel
    tokens : with `all`, kernels that do not support this number of tokens are left out

    Raises
    ------
    BadInput : a kernel is unknown, or cannot run the pattern
    """
    dense = [name for name, kernel in KERNELS.items() if kernel.natural_pattern == "dense"]
    runs = kernels_of(pattern) if pattern else ()
    able = dict.fromkeys((*dense, *runs)) if pattern else dict.fromkeys(KERNELS)
    usual = (name for name in able if name in runs or not KERNELS[name].opt_in)
    asked = [kernels] if isinstance(kernels, str) else kernels
    if not asked:
        raise BadInput("kernels must name at least one kernel, or be 'all', got none")
    names = [name for name in usual if takes(name, tokens)] if kernels == "all" else asked
    for name in names:
        if check_choice("kernel", name, KERNELS) not in able:
            raise BadInput(f"kernel {name} cannot run pattern {pattern}; {', '.join(runs)} can")
    own = dense if pattern else able
    return tuple(
        Candidate(name, KERNELS[name].natural_pattern if name in own else str(pattern), name in own)
        for name in able
        if name in names or KERNELS[name].is_baseline
    )


FEWEST_ZEROS = 0.05
"""Fraction of zero weights from which `zeros_note` returns a note; rounding to half precision makes fewer."""
IN_TILES = "zero-tiles:64"
"""Pattern that covers the nonzeros of any matrix that was pruned in tiles of a multiple of 64 rows."""
TILE_KERNELS = ("tile-wise", "stspmm", "small-n")


def zeros_note(layer: Layer) -> str | None:
    """Return a note with the fraction of zeros in a layer and whether they fit 2:4; None for few zeros."""
    kept = layer.kept
    share = 1.0 - float(np.count_nonzero(kept)) / kept.size
    if share < FEWEST_ZEROS:
        return None
    fits = " and fit 2:4" if _fits_two_of_four(layer) else ""
    return f"{share:.0%} of these weights are zero already{fits}: --pattern zeros runs them as they are"


def _fits_two_of_four(layer: Layer) -> bool:
    m, k = layer.shape
    whole = k // 4 * 4
    counts = layer.kept[:, :whole].reshape(m, -1, 4).sum(axis=2, dtype=np.uint8)
    return bool(whole) and bool((counts <= 2).all())


def zeros_candidates(tokens: int) -> tuple[Candidate, ...]:
    """Return the candidates for weights that are already pruned.

    Kernels run the nonzeros as single elements, as tiles that cover them, or as 2:4.
    """
    found = candidates("all", "zeros", tokens)
    tiles = [Candidate(kernel, IN_TILES) for kernel in TILE_KERNELS if takes(kernel, tokens)]
    return (*found, *tiles, Candidate("2:4", "zeros"))

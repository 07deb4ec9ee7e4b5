"""`SweepCase`: one prediction of a sweep, and the key under which its result is kept."""

import hashlib
import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

from prunecast.codesign.contestants import kernels_of, takes
from prunecast.codesign.engines import ENGINES
from prunecast.errors import BadInput, check_choice
from prunecast.hardware import STATES, load_gpu
from prunecast.kernels import DTYPE_BYTES, KERNELS
from prunecast.patterns import parse_pattern
from prunecast.patterns.pattern import check_sparsity
from prunecast.version import tool_version


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepCase:
    """C (M, N) = A (M, K) @ B (K, N) with random weights pruned to a pattern, by one kernel on one GPU.

    Parameters
    ----------
    gpu : name or path of a spec file
    m, k, n : sizes
    dtype : of A, B and C
    pattern, sparsity : what A is pruned to; sparsity None for patterns with one of their own
    kernel : what runs it
    engine, state, launch : as in `predict`
    seed : of the weights
    """

    gpu: str
    m: int
    k: int
    n: int
    dtype: str
    pattern: str
    sparsity: float | None
    kernel: str
    engine: str
    state: str
    launch: str
    seed: int

    def key(self, fingerprint: str | None = None) -> str:
        """First 32 hex digits of the SHA-256 of the case, the GPU's numbers and the version of the tool.

        `fingerprint` is that of the GPU where the caller has read its file already: reading takes longer than
        most predictions.
        """
        numbers = {
            **asdict(self),
            "gpu": fingerprint or load_gpu(self.gpu).fingerprint,
            "version": tool_version(),
        }
        return hashlib.sha256(json.dumps(numbers, sort_keys=True).encode()).hexdigest()[:32]


class GroupKey(NamedTuple):
    """What the cases of a group share: one pruned matrix, made once."""

    m: int
    k: int
    pattern: str
    sparsity: float | None
    seed: int


class Shape(NamedTuple):
    """M x K x N."""

    m: int
    k: int
    n: int


def expand(
    *,
    gpus: Sequence[str],
    shapes: Iterable[Sequence[int]],
    patterns: Sequence[str],
    sparsities: Sequence[float],
    kernels: Sequence[str] = (),
    dtype: str = "fp16",
    engine: str = "model",
    state: str = "burst",
    launch: str = "graph",
    seed: int = 0,
) -> list[SweepCase]:
    """All combinations of what can be run; dense once per GPU and shape.

    Parameters
    ----------
    shapes : (M, K, N) each
    kernels : those that run the patterns. Without, all that can, but CSR only where no other can: on tiles it
        is tens of times slower, and takes longest to predict; and kernels for few tokens only for few

    Raises
    ------
    BadInput : an unknown name, or a number out of range
    """
    for gpu in gpus:
        load_gpu(gpu)
    check_choice("engine", engine, ENGINES)
    check_choice("state", state, STATES)
    check_choice("dtype", dtype, DTYPE_BYTES)
    for kernel in kernels:
        check_choice("kernel", kernel, [name for name, known in KERNELS.items() if not known.parts])
    sizes = [_shape(shape) for shape in shapes]
    kinds = list(dict.fromkeys(_kinds(patterns, sparsities, kernels)))
    common = {"dtype": dtype, "engine": engine, "state": state, "launch": launch, "seed": seed}
    return [
        SweepCase(gpu=gpu, **shape._asdict(), **kind._asdict(), **common)  # type: ignore[arg-type]
        for shape, kind, gpu in itertools.product(sizes, kinds, gpus)
        if kernels or takes(kind.kernel, shape.n)
    ]


def groups_of(cases: Iterable[SweepCase]) -> dict[GroupKey, list[SweepCase]]:
    """Cases by the matrix that they share."""
    groups: dict[GroupKey, list[SweepCase]] = {}
    for case in cases:
        key = GroupKey(case.m, case.k, case.pattern, case.sparsity, case.seed)
        groups.setdefault(key, []).append(case)
    return groups


class _Kind(NamedTuple):
    pattern: str
    sparsity: float | None
    kernel: str


def _kinds(patterns: Sequence[str], sparsities: Sequence[float], kernels: Sequence[str]) -> Iterable[_Kind]:
    yield _Kind("dense", None, "dense")
    for sparsity in sparsities:
        check_sparsity(sparsity)
    for text in patterns:
        pattern = parse_pattern(text)
        if pattern.canonical == "dense":
            continue
        for sparsity in sparsities:
            for kernel in _kernels(pattern.canonical, kernels):
                yield _Kind(pattern.canonical, _told(text, sparsity), kernel)


def _kernels(pattern: str, asked: Sequence[str]) -> list[str]:
    able = [kernel for kernel in kernels_of(pattern) if not KERNELS[kernel].parts]
    if asked:
        return [kernel for kernel in able if kernel in asked]
    return [kernel for kernel in able if not KERNELS[kernel].runs_any_mask] or able


def _told(text: str, sparsity: float) -> float | None:
    """None where the pattern has a sparsity of its own; the same case then comes once."""
    try:
        parse_pattern(text).sparsity_to_prune(None)
    except BadInput:
        return sparsity
    return None


def _shape(sizes: Sequence[int]) -> Shape:
    if len(sizes) != 3 or min(sizes) < 1:
        raise BadInput(f"a shape must be M x K x N, each from 1, got {' x '.join(str(s) for s in sizes)}")
    return Shape(*sizes)

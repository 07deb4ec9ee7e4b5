"""Plans of a case: every way in which all its layers can be run, by name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from settings import Case, Digits, Language
from stored_maps import Kept, restore

from prunecast.choice import fastest_plan
from prunecast.codesign.contestants import kernels_of, takes
from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec
from prunecast.kernels import KERNELS, KernelPlan, plan_dense
from prunecast.patterns import parse_pattern

DTYPE = "fp16"
PIXELS = (64, 16, 4)
"""Of an image in each stage of the residual network."""

LEAST_TOKENS = min(Language.tokens, Digits.images * min(PIXELS))
"""N of the smallest layer."""


class Study(NamedTuple):
    """One of the two models."""

    name: str
    cases: list[Case]


STUDIES = {
    "language": Study("language", Language.cases),
    "digits": Study("digits", Digits.cases),
}


def tokens_of(study: str, layer: str) -> int:
    """N of a layer: tokens, or images times the pixels of its output."""
    if study == "language":
        return Language.tokens
    return Digits.images * PIXELS[int(layer.split(".")[1])]


def ways(study: str, case: Case, folder: Path, gpu: GpuSpec) -> Iterator[tuple[str, list[KernelPlan]]]:
    """A name and the plans of all layers, for each kernel that can run the case.

    Elements beside tiles run after the tiles, in a launch of their own.
    """
    layers = restore(folder, case)
    if not layers:
        return
    if case.pattern == "dense":
        yield "dense", [_dense(study, name, kept, gpu) for name, kept in layers.items()]
        return
    for kernel in _kernels(case):
        try:
            yield (
                kernel,
                [plan for name, kept in layers.items() for plan in _plans(study, name, kept, kernel, gpu)],
            )
        except BadInput as error:
            print(f"{case.name} on {kernel}: {error}")


def _kernels(case: Case) -> list[str]:
    """Those of one launch a layer that take many tokens; CSR only where nothing better runs the case."""
    if case.pattern.startswith("tile-element"):
        return ["tile-wise", "stspmm"]
    known = kernels_of(parse_pattern(case.pattern).canonical)
    able = [kernel for kernel in known if not KERNELS[kernel].parts and takes(kernel, LEAST_TOKENS)]
    return [kernel for kernel in able if not KERNELS[kernel].runs_any_mask] or able


def _dense(study: str, name: str, kept: Kept, gpu: GpuSpec) -> KernelPlan:
    if kept.tiles is None:
        raise BadInput(f"dense {name}: wanted a tile map, got none")
    return plan_dense(kept.tiles.m, kept.tiles.k, tokens_of(study, name), DTYPE, gpu)


def _plans(study: str, name: str, kept: Kept, kernel: str, gpu: GpuSpec) -> list[KernelPlan]:
    n = tokens_of(study, name)
    if kept.tiles is not None and kept.elements is not None:
        tiles = fastest_plan(kernel, kept.tiles, n=n, dtype=DTYPE, gpu=gpu)
        return [tiles, fastest_plan("csr", kept.elements, n=n, dtype=DTYPE, gpu=gpu)]
    whole = next(part for part in kept if part is not None)
    return [fastest_plan(kernel, whole, n=n, dtype=DTYPE, gpu=gpu)]

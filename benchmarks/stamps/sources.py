"""Copies of the package's CUDA sources with stamps written in, and kernels compiled from them."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from prunecast.kernels.cuda import build

__all__ = ["Patch", "Patches", "after", "before", "compile_from", "patched_sources", "plain_and_stamped"]

Patch = tuple[str, str]
"""A piece of a source that stands there once, and what is to stand there instead."""
Patches = Mapping[str, Sequence[Patch]]
"""By file."""


def after(anchor: str, code: str) -> Patch:
    """Write code behind a piece of a source."""
    return anchor, anchor + code


def before(anchor: str, code: str) -> Patch:
    """Write code before it."""
    return anchor, code + anchor


def patched_sources(folder: Path, patches: Patches, macro: str = "") -> Path:
    """The sources of the package in a folder of their own, patched; `macro` is at the end of `ptx.cuh`."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(build.SOURCES, folder, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    for name, changes in patches.items():
        text = (folder / name).read_text()
        for old, new in changes:
            if text.count(old) != 1:
                raise SystemExit(f"{name} has {old!r} {text.count(old)} times")
            text = text.replace(old, new)
        (folder / name).write_text(text)
    ptx = folder / "ptx.cuh"
    ptx.write_text(ptx.read_text() + macro)
    return folder


def plain_and_stamped(folder: Path, plain: Patches, stamped: Patches, macro: str) -> dict[bool, Path]:
    """Two such folders in `folder`, by whether stamps are written."""
    return {
        False: patched_sources(folder / "plain", plain, macro),
        True: patched_sources(folder / "stamped", stamped, macro),
    }


def compile_from(
    sources: Path, name: str, arch: str, defines: Mapping[str, int], folder: Path | None = None
) -> build.CompiledKernel:
    """Compile a file of such sources; `folder` is the cache, else that of the environment."""
    own, build.SOURCES = build.SOURCES, sources
    try:
        return build.compile_cubin(sources / name, arch, defines, allow_spills=True, folder=folder)
    finally:
        build.SOURCES = own

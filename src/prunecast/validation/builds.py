"""What a recorded time is a time of: two runs measured the same kernel only if this says so.

Own kernels are told by their CUDA sources, libraries by their versions; driver, toolkit and protocol count
for both.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from prunecast.kernels import KERNELS
from prunecast.kernels.cuda.build import SOURCES
from prunecast.kernels.further_launches import has_copied_rows
from prunecast.validation.case import Case
from prunecast.validation.records import RunHeader

__all__ = ["build_of", "source_digest", "source_digests"]

_FOLDERS = {"tile": "", "sparse": "sparse", "small": "small", "balanced": "balanced"}
"""Folder of the sources of each kind of kernel, beside the shared headers in the folder above."""


def build_of(header: RunHeader, kernel: str, case: Case) -> str:
    """A text that is equal in two runs that measured the same code of `kernel` in the same way.

    Copies to padded rows are the operator's code, so how they go counts for the cases that need them.
    """
    versions = header.versions
    kind = KERNELS[kernel].sources if kernel in KERNELS else ""
    code = _sources(header, kind) if kind else versions.get("cublas", "")
    copied = bool(kind) and has_copied_rows(kernel, case.n, case.dtype)
    around = [
        versions.get("copies", "") if copied else "",
        versions.get("cuda", ""),
        str(header.device.get("driver", "")),
        str(sorted(header.protocol.items())),
    ]
    return "; ".join([code, *around])


def _sources(header: RunHeader, kind: str) -> str:
    """Digest of the sources that ran; the commit, which no other run may share, where that is not known."""
    return header.versions.get(f"{kind}_sources") or f"commit {header.versions.get('commit', '')}"


def source_digests(folder: Path = SOURCES) -> dict[str, str]:
    """Digest of the CUDA sources of every kind of kernel, as a record's header names them."""
    return {f"{kind}_sources": source_digest(kind, folder) for kind in _FOLDERS}


def source_digest(kind: str, folder: Path = SOURCES) -> str:
    """First 16 hex digits of the SHA-256 of names and texts of the sources of one kind of kernel."""
    digest = hashlib.sha256()
    for file in _files(folder, _FOLDERS[kind]):
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _files(folder: Path, own: str) -> Iterable[Path]:
    for place in dict.fromkeys((folder, folder / own)):
        yield from sorted(path for path in place.glob("*.cu*") if path.suffix in (".cu", ".cuh"))

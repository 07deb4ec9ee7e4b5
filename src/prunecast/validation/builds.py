"""Identify the build of a measured kernel by a text that is equal in all runs of the same code.

The project's kernels are identified by their cubins, libraries by their versions. The text also contains the
versions of driver and toolkit and the measurement protocol. A record header contains the digest of the CUDA
sources. `cubins.toml` lists which sources were compiled to the same cubins, and
`docs/howto/add_a_kernel.md` describes how to add sources to this list.
"""

import hashlib
import tomllib
from functools import cache
from importlib import resources
from pathlib import Path

import prunecast.kernels
from prunecast.kernels import KERNELS
from prunecast.kernels.kernel import Sources
from prunecast.launch.context import has_copied_rows
from prunecast.validation.case import Case
from prunecast.validation.records import RunHeader

_KERNELS = Path(prunecast.kernels.__file__).parent


def build_of(header: RunHeader, kernel: str, case: Case) -> str:
    """Return a text that identifies the build of `kernel` in a run, and the way in which it was measured.

    Two runs with equal texts measured the same compiled code with the same driver, toolkit and protocol. If
    the operator must copy B to padded rows for this case, the text contains the version of these copies.
    """
    versions = header.versions
    sources = KERNELS[kernel].sources if kernel in KERNELS else None
    code = _cubins(header, sources) if sources else versions.get("cublas", "")
    copied = bool(sources) and has_copied_rows(kernel, case.n, case.dtype)
    around = [
        versions.get("copies", "") if copied else "",
        versions.get("cuda", ""),
        str(header.device.get("driver", "")),
        str(sorted(header.protocol.items())),
    ]
    return "; ".join([code, *around])


def _cubins(header: RunHeader, sources: Sources) -> str:
    """Return the digest of the cubins that ran; if `cubins.toml` does not list them, that of their sources.

    If the header of the record contains no digest, return the commit, so that runs of other commits do not
    match.
    """
    digest = header.versions.get(f"{sources.name}_sources")
    if digest is None:
        return f"commit {header.versions.get('commit', '')}"
    return _known_cubins().get(sources.name, {}).get(digest, digest)


def source_digests() -> dict[str, str]:
    """Return the digest of the CUDA sources of every kernel, by their names in a record header."""
    every = {kernel.sources for kernel in KERNELS.values() if kernel.sources}
    return {f"{sources.name}_sources": source_digest(sources) for sources in sorted(every)}


def source_digest(sources: Sources, kernels: Path = _KERNELS) -> str:
    """Return the first 16 hex digits of the SHA-256 of names and texts of the sources of a kernel."""
    digest = hashlib.sha256()
    for folder in sources.folders:
        place = kernels / folder
        for file in sorted([*place.glob("*.cu"), *place.glob("*.cuh")]):
            digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


@cache
def _known_cubins() -> dict[str, dict[str, str]]:
    """Return the content of `cubins.toml`: name of sources -> digest of sources -> digest of cubins."""
    text = resources.files("prunecast.validation").joinpath("cubins.toml").read_text(encoding="utf-8")
    found: dict[str, dict[str, str]] = tomllib.loads(text)
    return found

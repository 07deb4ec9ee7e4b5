"""Shell completion (TAB) of GPUs, patterns, kernels, standard models and files."""

from collections.abc import Iterable
from glob import escape, glob
from pathlib import Path


def gpus(incomplete: str) -> list[str]:
    """Return the names of GPUs and the spec files that begin with `incomplete`."""
    from prunecast.hardware import gpu_names

    return [*_beginning(gpu_names(), incomplete), *_files(incomplete, (".toml",))]


def patterns(incomplete: str) -> list[str]:
    """Return the pattern families and their aliases that begin with `incomplete`."""
    from prunecast.patterns.pattern_names import ALIASES, PATTERNS

    return _beginning((*PATTERNS, *ALIASES), incomplete)


def kernels(incomplete: str) -> list[str]:
    """Return the names of kernels that begin with `incomplete`."""
    from prunecast.kernels import KERNELS

    return _beginning(KERNELS, incomplete)


def models(incomplete: str) -> list[str]:
    """Return the names of standard models that begin with `incomplete`."""
    from prunecast.workload.graph import WORKLOADS

    return _beginning(WORKLOADS, incomplete)


def weights(incomplete: str) -> list[str]:
    """Return the weight files, folders and standard models that begin with `incomplete`."""
    from prunecast.patterns.sources.readers import READERS

    return [*_files(incomplete, tuple(e for r in READERS for e in r.endings)), *models(incomplete)]


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def _files(incomplete: str, suffixes: tuple[str, ...]) -> list[str]:
    found = (Path(name) for name in glob(escape(incomplete) + "*"))
    return sorted(f"{p}/" if p.is_dir() else f"{p}" for p in found if p.is_dir() or p.name.endswith(suffixes))

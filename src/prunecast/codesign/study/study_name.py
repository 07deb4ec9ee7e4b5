"""The name of a study: a hash of all that its results depend on, so that a rerun finds it again."""

import hashlib
import json
from dataclasses import asdict

from prunecast.codesign.provenance import WeightsDigest
from prunecast.codesign.search import Targets
from prunecast.codesign.search.model_search import ModelSearch
from prunecast.codesign.study.space import SPACE_VERSION
from prunecast.version import tool_version

__all__ = ["study_name"]


def study_name(search: ModelSearch, targets: Targets) -> str:
    """`prunecast-` and the first 16 hex digits of a SHA-256.

    It covers the importance of every weight, the model around the layers, the GPU's numbers, all settings,
    the version of the search space and that of the tool. Where a file lies does not count.
    """
    engine = search.engine
    numbers = {
        "weights": _weights(search),
        "graph": _graph(search),
        "tokens": search.layers.tokens,
        "spec": engine.gpu.fingerprint,
        "engine": [engine.name, engine.state, engine.launch],
        "dtype": search.dtype,
        "families": list(search.families),
        "caps": dict(search.caps),
        "most_sparsity": search.most_sparsity,
        "targets": asdict(targets),
        "space": SPACE_VERSION,
        "version": tool_version(),
    }
    digest = hashlib.sha256(json.dumps(numbers, sort_keys=True).encode()).hexdigest()
    return f"prunecast-{digest[:16]}"


def _weights(search: ModelSearch) -> str:
    digest = WeightsDigest()
    for name in search.layers.shapes:
        digest.add(name, search.layers.importance(name))
    return digest.hexdigest()


def _graph(search: ModelSearch) -> list[str]:
    graph = search.layers.graph
    return [] if graph is None else [repr(operation) for operation in graph]

"""JSON documents of the command line, and the provenance of predictions, which is needed to repeat them."""

import hashlib
import json
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prunecast.codesign.interval import INTERVAL_KIND
from prunecast.errors import BadInput
from prunecast.files import MIB, parse_json, read_bytes
from prunecast.launch import USUAL, Conditions
from prunecast.patterns import parse_pattern
from prunecast.patterns.sources import Layer
from prunecast.version import SCHEMA_VERSION, headed

LARGEST_DOCUMENT = 64 * MIB
"""Largest size of a document that is read, in bytes. A table of ten thousand layers with all kernels has
40 MiB."""


def json_text(document: dict[str, Any]) -> str:
    """Return the document as JSON text; equal documents give equal text.

    Raises
    ------
    ValueError : the document contains NaN or infinity
    """
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def read_document(path: str | Path, *, key: str) -> dict[str, Any]:
    """Read a JSON object that a command wrote with `--json`; it must contain `key`.

    Raises
    ------
    BadInput : the file is missing, is not JSON, contains no such object, or has another schema version
    """
    try:
        document = parse_json(read_bytes(path, "a file of `prunecast --json`", most=LARGEST_DOCUMENT))
    except BadInput:
        raise
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path} must be JSON, as `prunecast --json` writes it: {error}") from None
    if not isinstance(document, dict) or key not in document:
        raise BadInput(f"{path} must be a JSON object with {key!r}, as `prunecast --json` writes it")
    if document.get("schema_version") != SCHEMA_VERSION:
        raise BadInput(
            f"{path}: schema_version must be {SCHEMA_VERSION}, got {document.get('schema_version')!r}"
        )
    return document


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """GPU, weights and settings of a prediction.

    Parameters
    ----------
    gpu, spec_hash : name and fingerprint of the GPU spec
    weights_hash : fingerprint of the weights that were read
    tokens : number of tokens of a layer (N)
    conditions : clock, launch mode and contents of L2
    power_limit_w : requested power limit in W; None for the default of the GPU
    pattern, sparsity, scope, workload : the requested values; None where defaults were used
    runtime : runtime of a whole model, `engine` or `torch`
    tensor_parallel : number of GPUs that share the model
    source : name of the standard model, of the file or of the folder; empty for arrays
    """

    gpu: str
    spec_hash: str
    weights_hash: str
    tokens: int
    pattern: str | None
    sparsity: float | None
    scope: str
    workload: str | None = None
    runtime: str = "engine"
    tensor_parallel: int = 1
    source: str = ""
    conditions: Conditions = USUAL
    power_limit_w: float | None = None

    def document(self) -> dict[str, Any]:
        """Return the first entries of the JSON object of a command, including the versions."""
        head = {
            "gpu": self.gpu,
            "spec_hash": self.spec_hash,
            **({"source": self.source} if self.source else {}),
            "weights_hash": self.weights_hash,
            "seed": None if self.pattern is None else parse_pattern(self.pattern).seed,
            "tokens": self.tokens,
            **self.conditions.document(),
            **({} if self.power_limit_w is None else {"power_limit_w": self.power_limit_w}),
            "asked": {
                "pattern": self.pattern,
                "sparsity": self.sparsity,
                "scope": self.scope,
                **({} if self.workload is None else {"workload": self.workload}),
                **({} if self.runtime == "engine" else {"runtime": self.runtime}),
                **({} if self.tensor_parallel == 1 else {"tensor_parallel": self.tensor_parallel}),
            },
            "interval": INTERVAL_KIND,
        }
        return headed(head)


class WeightsDigest:
    """Hash of named arrays. They are added one at a time, so that a large model need not fit in memory."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()

    def add(self, name: str, weights: npt.NDArray[Any]) -> None:
        """Add a layer to the hash: its name, shape, format and values."""
        self._digest.update(f"{name}\0{weights.shape}\0{weights.dtype}\0".encode("utf-8", "surrogateescape"))
        self._digest.update(np.ascontiguousarray(weights).view(np.uint8).data)

    def hexdigest(self) -> str:
        """Return the first 16 hex digits of the SHA-256."""
        return self._digest.hexdigest()[:16]


class RowsDigest:
    """Hash of the weights of all rows of a prediction table, in the order of the rows.

    Rows are added while their weights are in memory, so that weights need not be read again for the hash.
    """

    def __init__(self, rows: Iterable[Layer]) -> None:
        self._digest = WeightsDigest()
        self._left = deque(rows)

    def add_read(self, read: Layer) -> None:
        """Add the next rows, as long as their weights are those of `read`, the layer that was read last."""
        while self._left and self._left[0].load is read.load:
            row = self._left.popleft()
            self._digest.add(row.name, row.weights)

    def hexdigest(self) -> str:
        """Add the remaining rows, and return the first 16 hex digits of the SHA-256."""
        while self._left:
            self.add_read(self._left[0])
        return self._digest.hexdigest()

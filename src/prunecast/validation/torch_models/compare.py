"""`validate_model`: one model measured on a GPU, dense and sparse, beside its predictions."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from prunecast.errors import BadInput
from prunecast.files import OutputFile, check_outputs, write_text_aside
from prunecast.hardware import GpuSpec, load_gpu
from prunecast.validation.torch_models.predicted import Case, check_case, predict_case
from prunecast.workload.engines import Progress, silent
from prunecast.workload.layers import files_of

SCHEMA_VERSION = 1
WITH_ZEROS = "zeros"
"""Word in names of dense variants with the pruned model's weights and zeros: none that a user would run."""


class Beside(NamedTuple):
    """A measured time, the variant that had it, and the prediction."""

    what: str
    variant: str
    measured_us: float
    predicted_us: float

    @property
    def error(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted_us / self.measured_us - 1.0


class ModelValidation(NamedTuple):
    """What one model takes, dense and sparse, each in its fastest variant."""

    case: Case
    gpu: str
    engine: str
    dense: Beside
    sparse: Beside
    measured: dict[str, Any]
    predicted: dict[str, dict[str, float]]
    """Seconds by kind of operation, dense and sparse."""

    @property
    def speedups(self) -> Beside:
        """Dense over sparse."""
        return Beside(
            "speedup",
            "best to best",
            self.dense.measured_us / self.sparse.measured_us,
            self.dense.predicted_us / self.sparse.predicted_us,
        )

    def rows(self) -> list[dict[str, Any]]:
        """One flat record a row of the table."""
        return [{**each._asdict(), "error": each.error} for each in (self.dense, self.sparse, self.speedups)]

    def document(self) -> dict[str, Any]:
        """What `--json` and the record hold."""
        return {
            "schema_version": SCHEMA_VERSION,
            "case": self.case.name,
            "gpu": self.gpu,
            "engine": self.engine,
            "rows": self.rows(),
            "predicted_seconds": self.predicted,
            "measured": self.measured,
        }


def validate_model(
    case: Case,
    *,
    gpu: str = "h200-sxm",
    engine: str = "simulator",
    dtype: str = "fp16",
    rounds: int = 25,
    record: Path | None = None,
    say: Callable[[str], None] = print,
    progress: Progress = silent,
) -> ModelValidation:
    """Measure a case on the GPU at hand and set it beside its prediction.

    Parameters
    ----------
    record : a new file (JSON) for everything that was measured, each kernel of a pass too

    Raises
    ------
    BadInput : no GPU or no PyTorch with CUDA, another GPU than the spec's, or a case that cannot be built;
        then nothing is written
    """
    if dtype not in ("fp16", "bf16"):
        raise BadInput(f"dtype of a model in torch must be fp16 or bf16, got {dtype!r}")
    if record is not None:
        check_outputs([OutputFile(what="--record", path=record, is_new=True)], files_of(case.model))
    spec = load_gpu(gpu)
    check_case(case)
    _check_gpu(spec)
    measured = _measure(case, spec, dtype, rounds, say)
    found = beside(case, measured, spec, engine=engine, dtype=dtype, progress=progress)
    if record is not None:
        write_text_aside(record, json.dumps(found.document(), indent=1) + "\n")
    return found


def beside(
    case: Case,
    measured: dict[str, Any],
    gpu: GpuSpec,
    *,
    engine: str,
    dtype: str = "fp16",
    progress: Progress = silent,
) -> ModelValidation:
    """What was measured of a case, in microseconds by variant under `us`, beside its prediction."""
    predicted = predict_case(case, gpu, engine=engine, dtype=dtype, progress=progress)
    us = {name: each for name, each in measured["us"].items() if WITH_ZEROS not in name}
    best = {}
    for kind, time in (("dense", predicted.dense), ("sparse", predicted.sparse)):
        own = {name: each for name, each in us.items() if name.startswith(kind)}
        if not own:
            raise BadInput(f"{case.name}: no {kind} variant ran: {measured.get('refused')}")
        fastest = min(own, key=own.__getitem__)
        best[kind] = Beside(kind, fastest, own[fastest], 1e6 * time.seconds)
    by_kind = {"dense": predicted.dense.seconds_by_kind, "sparse": predicted.sparse.seconds_by_kind}
    return ModelValidation(case, gpu.name, engine, best["dense"], best["sparse"], measured, by_kind)


def _check_gpu(gpu: GpuSpec) -> None:
    """Refuse a machine without that GPU, or without PyTorch for it."""
    try:
        import torch
    except ImportError as missing:
        raise BadInput(f"measuring a model needs PyTorch with CUDA and a GPU: {missing}") from None
    if not torch.cuda.is_available():
        raise BadInput("measuring a model needs PyTorch with CUDA and a GPU, and torch sees no GPU")
    from prunecast.torch.layer_table import check_gpu

    check_gpu(torch.device("cuda", torch.cuda.current_device()), gpu)


def _measure(case: Case, gpu: GpuSpec, dtype: str, rounds: int, say: Callable[[str], None]) -> dict[str, Any]:
    import torch

    from prunecast.validation.torch_models.measure import measure

    kind = {"fp16": torch.float16, "bf16": torch.bfloat16}[dtype]
    row: dict[str, Any] = measure(case, gpu.name, rounds=rounds, dtype=kind, say=say)
    return row

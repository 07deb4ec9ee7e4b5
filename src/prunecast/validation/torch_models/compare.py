"""`validate_model`: measure one model on a GPU, dense and sparse, and compare it with its prediction."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from prunecast.codesign.result import Result
from prunecast.errors import BadInput
from prunecast.files import OutputFile, check_outputs, write_text_aside
from prunecast.hardware import GpuSpec, load_gpu
from prunecast.launch import USUAL, Conditions
from prunecast.text import Cells, percent
from prunecast.validation.torch_models.predicted import ModelCase, check_model_case, predict_model_case
from prunecast.validation.torch_models.promise import POINTS
from prunecast.version import headed
from prunecast.workload.engines import Progress, silent
from prunecast.workload.layers import files_of

WITH_ZEROS = "zeros"
"""Word in the names of variants that run the pruned weights, zeros included, with dense kernels. They are
measured for comparison and never count as the dense model, since no user would run them.
"""


class ComparedTime(NamedTuple):
    """Measured time of the fastest variant of a model, and the predicted time of the model, both in us."""

    what: str
    """`dense` or `sparse`."""
    variant: str
    """Fastest measured variant, such as `sparse compiled`, of those that `measure` runs."""
    measured_us: float
    predicted_us: float

    @property
    def error(self) -> float:
        """Predicted time divided by measured time, minus 1."""
        return self.predicted_us / self.measured_us - 1.0


class ComparedSpeedup(NamedTuple):
    """Measured and predicted speedup of a pruned model: its dense time divided by its sparse time."""

    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """Predicted speedup divided by measured speedup, minus 1."""
        return self.predicted / self.measured - 1.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelValidation(Result):
    """Measured and predicted times of one model, dense and sparse, each in its fastest variant."""

    case: ModelCase
    gpu: str
    engine: str
    dense: ComparedTime
    sparse: ComparedTime
    measured: dict[str, Any]
    """Result of `measure.measure`: times of all variants in us (`us`), reasons of variants that failed
    (`refused`), the kernels of a pass, and more."""
    predicted: dict[str, dict[str, float]]
    """Predicted seconds by kind of operation, under the keys `dense` and `sparse`; empty if the predicted
    times come from a `Promise`."""

    @property
    def speedup(self) -> ComparedSpeedup:
        """Measured and predicted speedup, each between the fastest dense and the fastest sparse variant."""
        return ComparedSpeedup(
            self.dense.measured_us / self.sparse.measured_us,
            self.dense.predicted_us / self.sparse.predicted_us,
        )

    @property
    def conditions(self) -> Conditions:
        """Conditions of the predicted times: those of the promise, or the usual ones of a model in torch."""
        return USUAL if self.case.promise is None else self.case.promise.conditions

    @property
    def promise_kept(self) -> str:
        """Line with the promised (predicted) and measured ratio of sparse to dense time, and a verdict."""
        promised, share = 1.0 / self.speedup.predicted, 1.0 / self.speedup.measured
        kept = "kept" if share - promised <= POINTS else "not kept"
        return f"promised {promised:.1%} of the dense time, measured {share:.1%}: {kept} (3 points)"

    def frame_rows(self) -> list[dict[str, Any]]:
        """Return the rows of the data frame: dense and sparse."""
        return [{**each._asdict(), "error": each.error} for each in (self.dense, self.sparse)]

    def document(self) -> dict[str, Any]:
        """Return the JSON object of `--json` and of the record."""
        content: dict[str, Any] = {
            "case": self.case.name,
            "gpu": self.gpu,
            "engine": self.engine,
            **self.conditions.document(),
            "rows": self.frame_rows(),
            "speedup": {**self.speedup._asdict(), "error": self.speedup.error},
            "predicted_seconds": self.predicted,
            "measured": self.measured,
        }
        return headed(content)

    def cells(self) -> list[Cells]:
        """Return the rows of the printed table, as texts."""
        rows = [
            (each.what, each.variant, f"{each.measured_us:.1f} us", f"{each.predicted_us:.1f} us", each.error)
            for each in (self.dense, self.sparse)
        ]
        ratio = self.speedup
        rows.append(("speedup", "", f"{ratio.measured:.2f}x", f"{ratio.predicted:.2f}x", ratio.error))
        heads = ("what", "fastest as", "measured", "predicted")
        return [{**dict(zip(heads, texts, strict=True)), "error %": percent(error)} for *texts, error in rows]

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines on whether the promise was kept, and on variants that failed, with the reasons."""
        promise = () if self.case.promise is None else (self.promise_kept,)
        refused = self.measured.get("refused", {}).items()
        return (*promise, *(f"{name} did not run: {why}" for name, why in refused))


def validate_model(
    case: ModelCase,
    *,
    gpu: str = "h200-sxm",
    engine: str = "simulator",
    dtype: str = "fp16",
    rounds: int = 25,
    record: Path | None = None,
    say: Callable[[str], None] = print,
    progress: Progress = silent,
) -> ModelValidation:
    """Measure a case on the local GPU and compare it with its prediction.

    Parameters
    ----------
    gpu : name or path of the spec of the local GPU
    engine : engine of the prediction; not used for a case with a `Promise`, whose predicted times are in the
        recipe of the pruned folder
    dtype : `fp16` or `bf16`
    rounds : timed passes of each variant
    record : path of a new JSON file for all measured numbers, including each kernel of a pass
    say : called with a line of text after each variant

    Raises
    ------
    BadInput : there is no GPU or no PyTorch with CUDA, the GPU is not that of the spec, or the case cannot be
        built. In these cases nothing is written.
    """
    if dtype not in ("fp16", "bf16"):
        raise BadInput(f"dtype of a model in torch must be fp16 or bf16, got {dtype!r}")
    if record is not None:
        check_outputs([OutputFile(what="--record", path=record, is_new=True)], files_of(case.model))
    spec = load_gpu(gpu)
    check_model_case(case)
    _check_gpu(spec)
    measured = _measure(case, spec, dtype, rounds, say)
    found = beside(case, measured, spec, engine=engine, dtype=dtype, progress=progress)
    if record is not None:
        write_text_aside(record, json.dumps(found.document(), indent=1) + "\n")
    return found


def beside(
    case: ModelCase,
    measured: dict[str, Any],
    gpu: GpuSpec,
    *,
    engine: str,
    dtype: str = "fp16",
    progress: Progress = silent,
) -> ModelValidation:
    """Return the comparison of a measured case with its prediction.

    `measured["us"]` maps each variant to its time in us. If the case has a `Promise` (times from its recipe),
    these are the prediction; otherwise the case is predicted here.
    """
    by_kind: dict[str, dict[str, float]] = {}  # kind of operation -> seconds, for dense and sparse
    if case.promise is None:
        predicted = predict_model_case(case, gpu, engine=engine, dtype=dtype, progress=progress)
        seconds = {"dense": predicted.dense.seconds, "sparse": predicted.sparse.seconds}
        by_kind = {"dense": predicted.dense.seconds_by_kind, "sparse": predicted.sparse.seconds_by_kind}
    else:
        seconds = {"dense": case.promise.dense_seconds, "sparse": case.promise.seconds}
        engine = case.promise.engine
    us = {name: each for name, each in measured["us"].items() if WITH_ZEROS not in name}
    best = {}
    for kind, predicted_s in seconds.items():
        own = {name: each for name, each in us.items() if name.startswith(kind)}
        if not own:
            raise BadInput(f"{case.name}: no {kind} variant ran: {measured.get('refused')}")
        fastest = min(own, key=own.__getitem__)
        best[kind] = ComparedTime(kind, fastest, own[fastest], 1e6 * predicted_s)
    return ModelValidation(
        case=case,
        gpu=gpu.name,
        engine=engine,
        dense=best["dense"],
        sparse=best["sparse"],
        measured=measured,
        predicted=by_kind,
    )


def _check_gpu(gpu: GpuSpec) -> None:
    """Raise BadInput if PyTorch with CUDA is missing, or if the local GPU is not that of the spec."""
    try:
        import torch
    except ImportError as missing:
        raise BadInput(f"measuring a model needs PyTorch with CUDA and a GPU: {missing}") from None
    if not torch.cuda.is_available():
        raise BadInput("measuring a model needs PyTorch with CUDA and a GPU, and torch sees no GPU")
    from prunecast.torch.layer_table import check_gpu

    check_gpu(torch.device("cuda", torch.cuda.current_device()), gpu)


def _measure(
    case: ModelCase, gpu: GpuSpec, dtype: str, rounds: int, say: Callable[[str], None]
) -> dict[str, Any]:
    import torch

    from prunecast.validation.torch_models.measure import measure

    kind = {"fp16": torch.float16, "bf16": torch.bfloat16}[dtype]
    row: dict[str, Any] = measure(case, gpu.name, rounds=rounds, dtype=kind, say=say)
    return row

"""`prunecast validate --model`: a whole model in PyTorch, measured beside its prediction."""

from pathlib import Path

from rich.console import Console

from prunecast.cli.progress import ProgressLines
from prunecast.cli.tables import Column, grid, percent, safe
from prunecast.codesign.graph import parse_workload
from prunecast.errors import BadInput
from prunecast.validation.torch_models import Case
from prunecast.validation.torch_models.compare import ModelValidation, validate_model


def validated(
    model: str,
    workload: str,
    blocks: int | None,
    pattern: str,
    sparsity: float,
    *,
    gpu: str | None,
    engine: str,
    record: Path | None,
) -> ModelValidation:
    """Measure it. Raises BadInput where it cannot be."""
    passes = parse_workload(workload)
    if len(passes) > 1:
        raise BadInput(f"--model measures one pass, got {len(passes)}: {workload!r}")
    if blocks is not None and blocks < 1:
        raise BadInput(f"--blocks must be at least 1, got {blocks}")
    case = Case(model, passes[0], sparsity, pattern, blocks)
    with ProgressLines() as progress:
        return validate_model(
            case,
            gpu=gpu or "h200-sxm",
            engine=engine,
            record=record,
            say=lambda line: progress(f"measuring: {line}", 0, 1),
            progress=progress,
        )


def show_model(found: ModelValidation, console: Console) -> None:
    """The table: dense, sparse and speedup."""
    console.print(safe(f"{found.gpu}, {found.case.name}, {found.case.pattern}, {found.engine}"))
    columns = [Column("what"), Column("fastest as")]
    columns += [Column(name, number=True) for name in ("measured", "predicted", "error %")]
    times = [
        [
            each.what,
            each.variant,
            f"{each.measured_us:.1f} us",
            f"{each.predicted_us:.1f} us",
            percent(each.error),
        ]
        for each in (found.dense, found.sparse)
    ]
    ratio = found.speedups
    times.append(
        [ratio.what, "", f"{ratio.measured_us:.2f}x", f"{ratio.predicted_us:.2f}x", percent(ratio.error)]
    )
    console.print(grid(columns, times, to=console))
    for name, why in found.measured.get("refused", {}).items():
        console.print(safe(f"{name} did not run: {why}"), soft_wrap=True)

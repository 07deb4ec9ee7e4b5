"""`prunecast validate --model`: a whole model in PyTorch, measured beside its prediction."""

from pathlib import Path

from prunecast.cli.progress import ProgressLines
from prunecast.cli.tables import Page
from prunecast.codesign.graph import parse_workload
from prunecast.errors import BadInput
from prunecast.text import percent
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


def show_model(found: ModelValidation, page: Page) -> None:
    """The table: dense, sparse and speedup."""
    page.say(f"{found.gpu}, {found.case.name}, {found.case.pattern}, {found.engine}")
    ratio = found.speedups
    page.table(
        [
            {
                "what": each.what,
                "fastest as": "" if each == ratio else each.variant,
                "measured": f"{each.measured_us:.2f}x" if each == ratio else f"{each.measured_us:.1f} us",
                "predicted": f"{each.predicted_us:.2f}x" if each == ratio else f"{each.predicted_us:.1f} us",
                "error %": percent(each.error),
            }
            for each in (found.dense, found.sparse, ratio)
        ],
        words=("what", "fastest as"),
    )
    for name, why in found.measured.get("refused", {}).items():
        page.say(f"{name} did not run: {why}")

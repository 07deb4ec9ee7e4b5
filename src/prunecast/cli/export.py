"""`prunecast export`: write latencies of a model in the formats of serving simulators."""

from pathlib import Path
from typing import Annotated

from prunecast.cli import options as opt
from prunecast.cli.guard import folder_written
from prunecast.cli.progress import ProgressLines, tell


def export(
    weights: opt.Weights,
    *,
    gpu: opt.Gpu = "h200-sxm",
    format: Annotated[
        str,
        opt.option(
            "TEXT",
            "aiconfigurator: a systems folder; llmservingsim: a profile bundle.",
            "--format",
            default=False,
        ),
    ],
    output: Annotated[
        str,
        opt.option("FOLDER", "Empty or new folder.", "--output", "-o", default=False),
        folder_written("query_versions.yaml", "meta.yaml"),
    ],
    read: opt.Read,
    pattern: opt.Pattern = opt.DEFAULTS["pattern"],
    sparsity: opt.Sparsity = opt.DEFAULTS["sparsity"],
    engine: opt.Engine = "model",
    state: opt.State = opt.DEFAULTS["state"],
    routing: Annotated[str, opt.setting("routing")] = opt.DEFAULTS["routing"],
    tensor_parallel: Annotated[int, opt.setting("tensor_parallel")] = opt.DEFAULTS["tensor_parallel"],
) -> None:
    """Write latency tables for AIConfigurator or LLMServingSim, predicted for a model on the GPU --gpu.

    The model is dense, or pruned: by --pattern, --sparsity or --remove, or as the recipe in its folder says.
    """
    from prunecast.codesign.export.write import check_empty
    from prunecast.codesign.export.write import export as write

    check_empty(Path(output))
    with ProgressLines() as progress:
        times = write(
            read.source(weights),
            gpu=gpu,
            format=format,
            out=output,
            pattern=pattern,
            sparsity=sparsity,
            engine=engine,
            state=state,
            routing=routing,
            tensor_parallel=tensor_parallel,
            dtype="bf16",
            progress=progress,
        )
    what = "pruned" if times.is_pruned else "dense"
    tell(f"Wrote {output}: {format}, {times.model} on {times.gpu.name}, {what}, predicted.")

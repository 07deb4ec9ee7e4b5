"""`prunecast validate`: compare predictions with times that are measured on this GPU, or that were recorded.

With `--model`, measure a whole model in PyTorch and compare it with its prediction.
"""

from datetime import UTC, datetime
from functools import partial
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from prunecast.cli import options as opt
from prunecast.cli.guard import Given, Reads, Writes, file_written, gpu_files, weight_files
from prunecast.cli.output import Report, deliver
from prunecast.cli.progress import ProgressLines, tell
from prunecast.errors import BadInput
from prunecast.files import Output

if TYPE_CHECKING:
    from prunecast.cli.tables import Page
    from prunecast.validation import Validation
    from prunecast.validation.torch_models.compare import ModelValidation


def _page_and_figures(what: str, value: str | Path, given: Given) -> list[Output]:
    from prunecast.validation.report import report_outputs

    return report_outputs(Path(value), what)


def validate(
    *,
    suite: Annotated[
        str,
        opt.option(
            "NAME", "Bundled suite to measure, `standard` or a later one, or the path of a TOML file."
        ),
        Reads(),
    ] = "standard",
    gpu: Annotated[
        str | None,
        opt.option("NAME", "GPU spec to predict with.", default="h200-sxm, or the records'"),
        Reads(gpu_files),
    ] = None,
    replay: Annotated[
        list[str] | None,
        opt.option(
            "FILE", "Record to predict instead of measuring, or `bundled`; can be repeated.", default="none"
        ),
        Reads(),
    ] = None,
    record: Annotated[
        Path | None,
        opt.option("FILE", "New file (CSV) for what is measured.", default=False),
        file_written(is_new=True),
    ] = None,
    part: Annotated[str, opt.option("I/N", "Measure or replay part I of N, in layers.")] = "1/1",
    resume: Annotated[
        list[str] | None,
        opt.option("FILE", "Record whose cases are not measured again.", default="none"),
        Reads(),
    ] = None,
    seconds: Annotated[float, opt.option("S", "Start no layer after this many seconds.")] = 480.0,
    engine: Annotated[str, opt.option("TEXT", "simulator, model, or both.")] = "both",
    report: Annotated[
        Path | None,
        opt.option("FILE", "Also write the report (.md).", default=False),
        Writes(_page_and_figures),
    ] = None,
    intervals: Annotated[
        Path | None,
        opt.option("FILE", "Also write the table of intervals (.toml).", default=False),
        file_written(),
    ] = None,
    model: Annotated[
        str | None,
        opt.option(
            "NAME",
            "Measure a whole model in PyTorch instead, dense and pruned: a standard transformer, or a"
            " folder of Hugging Face's. Of a folder that prune --latency wrote: was its promise kept?",
            default="none",
        ),
        Reads(weight_files),
    ] = None,
    workload: Annotated[
        str | None,
        opt.option(
            "TEXT",
            "With --model: prefill:32x128, decode:16@1024 or batch:8.",
            default="prefill:2048, or that of the promise",
        ),
    ] = None,
    blocks: Annotated[
        int | None, opt.option("N", "With --model: blocks of a standard model.", default="all")
    ] = None,
    pattern: Annotated[
        str | None,
        opt.option(
            "TEXT",
            "With --model: pattern of every layer.",
            default="tile-wise:128, or the recipe of the promise",
        ),
    ] = None,
    sparsity: Annotated[float, opt.option("SHARE", "With --model: share of weights to remove.")] = 0.75,
    printed: opt.Printed,
) -> None:
    """Measure a suite and set it beside the predictions. With --replay nothing is measured.

    With --model it is a model that is measured, as torch.compile and prunecast.torch.sparsify run it, and
    --record names a .json file.
    """
    given = locals()
    from prunecast.workload.engines import ENGINES

    if engine != "both" and engine not in ENGINES:
        raise BadInput(f"engine must be both, {' or '.join(ENGINES)}, got {engine!r}")
    engines = ENGINES if engine == "both" else (engine,)
    if model is not None:
        _refuse(given, ("suite", "replay", "part", "resume", "seconds", "report", "intervals"), OF_SUITES)
        found = _validated_model(
            model, workload, blocks, pattern, sparsity, gpu=gpu, engine=engines[0], record=record
        )
        deliver(printed, Report(found.document(), found.frame_rows(), partial(_show_model, found)))
        return
    numbers = _part(part)
    _refuse(given, ("workload", "blocks", "pattern", "sparsity"), "is of a whole model: give --model too")
    if replay:
        _refuse(given, ("suite", "record", "resume", "seconds"), "has no effect: --replay measures nothing")
    from prunecast.validation.intervals import read_intervals, write_intervals
    from prunecast.validation.suite import load_suite
    from prunecast.validation.validate import bundled_records, record_suite, rows_left
    from prunecast.validation.validate import replay as predict_again

    if intervals is not None:
        read_intervals(intervals)  # it will be extended, so refuse an unreadable file before the work
    with ProgressLines() as progress:
        if replay:
            paths = [path for one in replay for path in (bundled_records(gpu) if one == "bundled" else [one])]
        else:
            out = record or Path(f"validation-{datetime.now(UTC):%Y-%m-%d-%H%M%S}.csv")
            chosen = load_suite(suite)
            record_suite(
                chosen,
                gpu=gpu or "h200-sxm",
                out=out,
                part=numbers,
                resume=resume or (),
                seconds=seconds,
                log=lambda line: progress(f"measuring: {line}", 0, 1),
            )
            paths = [*(resume or ()), str(out)]
            left = rows_left(chosen, part=numbers, paths=paths)
            if left:
                go_on = f"--resume {out} with more --seconds measures them"
                tell(
                    f"prunecast: {left} row{'s' * (left != 1)} not begun in {seconds:g} s; {go_on}", err=True
                )
        validation = predict_again(
            paths, gpu=gpu, engines=engines, part=numbers if replay else (1, 1), progress=progress
        )
    if report is not None:
        from prunecast.validation.report import write_report

        write_report(validation, report)
    if intervals is not None:
        write_intervals(validation, intervals)
    deliver(printed, Report(validation.document(), validation.frame_rows(), partial(_show, validation)))


OF_SUITES = "is of suites: --model goes with --record alone"


def _refuse(given: Given, names: tuple[str, ...], why: str) -> None:
    """Raise BadInput if one of the options `names` has another value than its default."""
    usual = signature(validate).parameters
    for name in names:
        if given[name] != usual[name].default:
            value = given[name][0] if isinstance(given[name], list) else given[name]
            raise BadInput(f"--{name} {value} {why}")


def _part(text: str) -> tuple[int, int]:
    try:
        number, parts = (int(side) for side in text.split("/"))
    except ValueError:
        raise BadInput(f"part must be I/N, like 1/4, got {text!r}") from None
    return number, parts


def _show(validation: "Validation", page: "Page") -> None:
    from prunecast.validation.validate import WORDS

    page.table(validation.cells(), words=WORDS)
    page.say()
    page.say(*validation.notes)


def _validated_model(
    model: str,
    workload: str | None,
    blocks: int | None,
    pattern: str | None,
    sparsity: float,
    *,
    gpu: str | None,
    engine: str,
    record: Path | None,
) -> "ModelValidation":
    """Measure a whole model and compare it with its prediction. Raises BadInput if it cannot be measured."""
    from prunecast.validation.torch_models import ModelCase
    from prunecast.validation.torch_models.compare import validate_model
    from prunecast.validation.torch_models.promise import Promise
    from prunecast.workload.graph import parse_workload

    promise = None if pattern or workload else Promise.of(model)
    passes = (promise.run,) if promise else parse_workload(workload or "prefill:2048")
    if len(passes) > 1:
        raise BadInput(f"--model measures one pass, got {len(passes)}: {workload!r}")
    if blocks is not None and blocks < 1:
        raise BadInput(f"--blocks must be at least 1, got {blocks}")
    case = ModelCase(model, passes[0], sparsity, pattern or "tile-wise:128", blocks, promise)
    with ProgressLines() as progress:
        return validate_model(
            case,
            gpu=gpu or (promise.gpu if promise else "h200-sxm"),
            engine=engine,
            record=record,
            say=lambda line: progress(f"measuring: {line}", 0, 1),
            progress=progress,
        )


def _show_model(found: "ModelValidation", page: "Page") -> None:
    """Print the table of dense and sparse times and the speedup."""
    how = found.case.pattern if found.case.promise is None else "its recipe"
    page.say(f"{found.gpu}, {found.case.name}, {how}, {found.engine}; predicted: {found.conditions.words}")
    page.table(found.cells(), words=("what", "fastest as"))
    page.say(*found.notes)

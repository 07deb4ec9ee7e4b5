"""`prunecast calibrate`: measure the local GPU and write its spec file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prunecast.cli import options as opt
from prunecast.cli.guard import Given, Reads, Writes, gpu_files
from prunecast.cli.output import Report, deliver
from prunecast.cli.progress import ProgressLines
from prunecast.errors import BadInput
from prunecast.files import Output, OutputFile

if TYPE_CHECKING:
    from prunecast.cli.tables import Page


RAW = ".raw.json"
"""Suffix of the file of raw results that is written next to a spec."""


def _spec_and_raw(what: str, value: str | Path, given: Given) -> list[Output]:
    """Return the output files: the spec, and the raw results if the GPU will be measured."""
    spec = Path(value)
    written = OutputFile(what=what, path=spec, suffixes=(".toml",), is_new=True)
    if given["raw"] is not None or not spec.name:  # no name: refused as a spec, whatever its raw numbers
        return [written]
    return [written, OutputFile(what="the raw numbers", path=spec.with_suffix(RAW))]


def calibrate(
    spec: Annotated[
        Path,
        typer.Argument(metavar="SPEC.toml", show_default=False, help="New spec file to write."),
        Writes(_spec_and_raw),
    ],
    *,
    gpu: Annotated[
        str | None,
        opt.option(
            "NAME",
            "Spec that provides what cannot be measured.",
            default="the nearest of the device's compute capability",
        ),
        Reads(gpu_files),
    ] = None,
    raw: Annotated[
        Path | None,
        opt.option("FILE", "Raw numbers of an earlier run; needs no GPU.", default="none"),
        Reads(),
    ] = None,
    printed: opt.Printed,
) -> None:
    """Measure the GPU at hand. Writes a complete spec, raw numbers beside it, in at most three minutes."""
    from prunecast.files import write_text_aside
    from prunecast.validation.derive_spec import CalibratedSpec, base_for, derive, read_raw, spec_file

    document = _measured(gpu, spec.with_suffix(RAW)) if raw is None else read_raw(raw)
    base = gpu or base_for(document.get("device") or {})
    write_text_aside(spec, spec_file(base, document, name=spec.stem))
    found = CalibratedSpec(base=base, spec=str(spec), quantities=derive(document["raw"], base))

    def shown(page: "Page") -> None:
        page.table(found.cells(), words=("quantity", "how"))
        page.say("", f"Written: {found.spec}; {'; '.join(found.notes)}.")

    deliver(printed, Report(found.document(), found.frame_rows(), shown))


def _measured(gpu: str | None, path: Path) -> dict[str, Any]:
    import json

    from prunecast.files import write_text_aside
    from prunecast.hardware import load_gpu

    base = None if gpu is None else load_gpu(gpu)
    try:
        from prunecast.validation.measure.calibrate import measure_raw
    except ImportError as missing:
        raise BadInput(f"measuring needs CuPy (extra cuda13): {missing}; --raw needs none") from None
    with ProgressLines() as progress:
        document = measure_raw(base, progress)
    write_text_aside(path, json.dumps(document, indent=1) + "\n")
    return document

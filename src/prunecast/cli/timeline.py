"""`prunecast timeline`: write the activity of the warps of one layer over time as a trace file."""

from typing import Annotated

from prunecast.cli import options as opt
from prunecast.cli.guard import file_written
from prunecast.cli.progress import ProgressLines, tell
from prunecast.errors import BadInput

MOST_SMS = 4096


def timeline(
    weights: opt.Weights,
    *,
    gpu: opt.Gpu = "h200-sxm",
    kernel: Annotated[str, opt.option("NAME", "Kernel to show.")] = "stspmm",
    options: opt.LayerOptions,
    sm: Annotated[str, opt.option("LIST", "SMs to show, such as 0-3 or 0,5,7.")] = "0-3",
    first_waves: Annotated[int, opt.option("COUNT", "Items of each block slot to show; 0 shows all.")] = 2,
    max_slices: Annotated[int, opt.option("COUNT", "Refuse a larger trace.")] = 200_000,
    output: Annotated[
        str,
        opt.option("FILE", "The trace: .json.gz or .json.", "--output", "-o"),
        file_written(".json.gz", ".json"),
    ] = "trace.json.gz",
) -> None:
    """Trace the warps of one layer. For ui.perfetto.dev or chrome://tracing; name the layer with --target."""
    sms = _numbers(sm)
    if first_waves < 0:
        raise BadInput(f"first-waves must be 0 or more, got {first_waves}")
    from prunecast.codesign import predict
    from prunecast.codesign.timeline.chrome_trace import write_timeline
    from prunecast.hardware import load_gpu
    from prunecast.launch import Conditions

    with ProgressLines() as progress:
        table = predict(
            options.source(weights),
            gpu=gpu,
            kernels=(kernel,),
            **options.arguments(),
            engine="model",  # only the plan is used: the trace is simulated
            crossovers=False,
            progress=progress,
        )
    layers = list(dict.fromkeys(row.layer for row in table))
    rows = [row for row in table if row.kernel == kernel]
    if len(layers) != 1 or not rows:
        found = f"{len(layers)} layers" if len(layers) != 1 else f"no {kernel} plan of {layers[0]}"
        raise BadInput(f"timeline takes one layer and a kernel that runs it, got {found}: see --target")
    written = write_timeline(
        rows[0].plan,
        load_gpu(gpu),
        output,
        sms=sms,
        first_waves=first_waves or None,
        state=options.state,
        most_slices=max_slices,
    )
    tell(f"{written.path}: {written.slices} slices, {written.file_bytes / 1e6:.2f} MB")
    part = f", the first {first_waves} items of each block slot" if first_waves else ""
    tell(
        f"It shows SMs {sm} of {load_gpu(gpu).sm_count}{part}: up to {1e6 * written.shown_seconds:.4g} us of "
        f"{1e6 * written.seconds:.4g} us ({Conditions(options.state).words})."
    )


def _numbers(text: str) -> list[int]:
    """Return the SM numbers in a text such as `0-3` or `0,5,7`, sorted. Raises BadInput for another text."""
    numbers: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not (first.isdecimal() and (last.isdecimal() if dash else True)) or len(first + last) > 8:
            raise BadInput(f"sm must be numbers and ranges such as 0-3 or 0,5,7, got {text!r}")
        named = range(int(first), int(last or first) + 1)
        if not named:
            raise BadInput(f"sm must be numbers and ascending ranges such as 0-3, got {text!r:.80}")
        if len(numbers) + len(named) > MOST_SMS:
            raise BadInput(f"sm must name at most {MOST_SMS} SMs, got {text!r:.80}")
        numbers.extend(named)
    return sorted(set(numbers))

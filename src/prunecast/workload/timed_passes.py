"""Forward passes of a command, from its options for tokens, batch and workload."""

from prunecast.errors import BadInput
from prunecast.workload.graph.shapes import SEQUENCE, Pass, checked_tokens, parse_workload
from prunecast.workload.layers import Source, check_exists, has_model, is_onnx

TOKENS = 4096
"""Default N of layers without a model graph."""
BATCH = 8
"""Default number of images or sequences of a standard model."""


def timed_passes(
    source: Source, *, tokens: int | None = None, batch: int | None = None, workload: str | None = None
) -> tuple[Pass, ...]:
    """Return the forward passes to time.

    Without `tokens`, `batch` and `workload`, a model runs `BATCH` sequences of `SEQUENCE` tokens, or `BATCH`
    images.

    Parameters
    ----------
    tokens : tokens of each sequence of a model; N of layers without a model graph
    batch : sequences or images of a model; if only `tokens` is given, one sequence
    workload : text that replaces tokens and batch, such as `prefill:2048`

    Raises
    ------
    BadInput : a malformed workload, see `parse_workload`; tokens or a batch out of range
    """
    if tokens is not None:
        checked_tokens(tokens)
    if batch is not None and batch < 1:
        raise BadInput(f"batch must be at least 1, got {batch}")
    if workload is not None:
        return parse_workload(workload)
    if not has_model(source) and not is_onnx(source):
        return (Pass(1, TOKENS if tokens is None else tokens),)
    if batch is None:
        batch = BATCH if tokens is None else 1
    return (Pass(batch, SEQUENCE if tokens is None else tokens),)


def check_batch(source: Source, batch: int | None, *, workload: str | None, has_images: bool = False) -> None:
    """Raise BadInput for a batch or a workload that cannot be applied to the source.

    Parameters
    ----------
    has_images : the user gave input sizes of convolutions
    """
    if is_onnx(source):
        if workload is not None:
            raise BadInput(f"{source}: an .onnx file says its sizes: wanted tokens or batch, got {workload}")
        return
    if batch is None:
        return
    if has_model(source) and workload is not None:
        raise BadInput(f"batch and a workload exclude each other, got {batch} and {workload}")
    if not has_model(source) and not has_images:
        check_exists(source)
        raise BadInput(
            f"batch {batch} is of images: convolutions need --input, matrices --tokens or --workload"
        )

"""Choice of the attention kernel that an engine or torch runs on a GPU."""

from prunecast.errors import BadInput
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.libraries.attention.shape import Attention
from prunecast.kernels.libraries.attention.work import tiles_of
from prunecast.kernels.libraries.library_tables import rows_for

MATH = "math"
"""Name of torch's unfused path, which supports every shape."""


def kernel_for(shape: Attention, gpu: GpuSpec, runtime: str) -> str:
    """Return the name of the attention kernel that a runtime uses.

    `tables/attention_choices.csv` lists the kernels of each runtime in order of preference. The first one
    that supports the phase, the mask and the head width is used.

    Parameters
    ----------
    runtime : `engine` or `torch`

    Raises
    ------
    BadInput : no kernel supports the call
    """
    masks = ("keys", "yes") if shape.reads_mask_of_keys else ("yes",) if shape.has_mask else ("no",)
    refused = f"attention: {runtime} has no kernel on {gpu.name}"
    for row in rows_for("attention_choices", gpu.compute_capability):
        if row["runtime"] != runtime or shape.phase not in row["phases"].split():
            continue
        if row["mask"] not in ("any", *masks):
            continue
        for kernel in row["kernels"].split("|"):
            if kernel == MATH:
                return kernel
            try:
                tiles_of(kernel, shape, gpu)
            except BadInput as error:
                refused = str(error)
                continue
            return kernel
    raise BadInput(refused)

"""Which kind of operation a kernel of a trace is, told by the name that its library or Inductor gave it."""

import re
from collections.abc import Iterable

KINDS = (
    ("attention", r"cudnn_generated|flash|lean_reduction|fmha"),
    ("gemm", r"nvjet|tile_sm90|small_n|splitK|[Mm]emset|hgemm|s16816gemm"),
    ("patches", r"nchw|nhwc|fprop|convolution"),
    ("transpose", r"transpose_rows|triton_poi.*(clone_linear|_t_view)"),
    ("activation", r"triton_poi.*gelu"),
    ("gated unit", r"triton_poi.*silu"),
    ("rotary", r"triton_poi.*attention.*cos|triton_poi.*cos.*transpose"),
    ("normalise", r"triton_(red|per)"),
    ("cache", r"index_copy|copy__|Fill"),
)
"""Kind -> expression; the first that is found counts. Memory that cuBLAS and cuDNN set to zero counts as
product's."""
OTHER = "input"
"""What is left makes the input: embeddings, positions."""


def kind_of(kernel: str) -> str:
    """The kind of operation that a kernel is."""
    return next((kind for kind, text in KINDS if re.search(text, kernel)), OTHER)


def by_kind(kernels: Iterable[tuple[str, float, float]]) -> dict[str, tuple[float, float]]:
    """Launches and microseconds of a pass by kind, from name, launches and microseconds of each kernel."""
    found: dict[str, tuple[float, float]] = {}
    for name, launches, us in kernels:
        before = found.get(kind_of(name), (0.0, 0.0))
        found[kind_of(name)] = (round(before[0] + launches, 2), round(before[1] + us, 2))
    return found

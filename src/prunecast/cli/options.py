"""Options that several commands share, spelled like the fields they fill."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from prunecast.codesign import ConvSettings

Weights = Annotated[
    str,
    typer.Argument(
        metavar="WEIGHTS",
        show_default=False,
        help="Weight matrices (M, K) or filters (out, in, kh, kw): a folder of .safetensors, or a file"
        " .safetensors, .npz, .npy, .mtx, .smtx or .onnx.",
    ),
]
Gpu = Annotated[
    str, typer.Option(metavar="NAME", help="GPU name, see `prunecast gpus`, or path of a spec file.")
]
Tokens = Annotated[int, typer.Option("--tokens", "-n", metavar="N", help="Tokens: columns of B and C.")]
Sparsity = Annotated[
    float | None,
    typer.Option(metavar="SHARE", show_default="0.75, 2:4 always 0.5", help="Share of weights to remove."),
]
Pattern = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        show_default="each kernel's own",
        help="Pattern to prune to, see `prunecast patterns`.",
    ),
]
Scope = Annotated[
    str,
    typer.Option(
        metavar="TEXT", help="layer: the same sparsity in each; global: the least important of all."
    ),
]
Kernels = Annotated[
    list[str] | None,
    typer.Option("--kernel", metavar="NAME", show_default="all", help="Kernel to predict; can be repeated."),
]
Engine = Annotated[
    str, typer.Option(metavar="TEXT", help="simulator, or model: closed form, faster, coarser.")
]
State = Annotated[
    str, typer.Option(metavar="TEXT", help="burst: rests between runs; sustained: power limited.")
]
Launch = Annotated[str, typer.Option(metavar="TEXT", help="graph or stream: how the kernel is launched.")]
Dtype = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        show_default="bf16 for bf16 weights, else fp16",
        help="fp16, bf16 or tf32 (fp32 is taken for it).",
    ),
]
ExpertsPerToken = Annotated[
    int, typer.Option(metavar="N", help="Experts per token, in layers of a mixture of experts.")
]
Target = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", show_default="all", help="Layer to take, or re:REGEX; can be repeated."),
]
Ignore = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME", show_default="none", help="Layer to leave out, or re:REGEX; can be repeated."
    ),
]
InputSize = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        metavar="HxW",
        show_default="none: filters count as matrices",
        help="Input size of convolutions, or NAME=HxW, re:REGEX=HxW; can be repeated, the last one counts.",
    ),
]
Stride = Annotated[
    list[str] | None,
    typer.Option(metavar="S", show_default="1", help="Stride of convolutions, or NAME=S; can be repeated."),
]
Padding = Annotated[
    list[str] | None,
    typer.Option(metavar="P", show_default="half the filter", help="Padding, or NAME=P; can be repeated."),
]
Batch = Annotated[int, typer.Option(metavar="N", help="Images that a convolution gets.")]
Conv = Annotated[
    str,
    typer.Option(
        metavar="TEXT",
        help="implicit: B is never written; im2col: it is, first; best: the faster one.",
    ),
]
Latency = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        show_default=False,
        help="Latency budget: 60% of the dense time, 850us or 1.2ms.",
    ),
]
Speedup = Annotated[
    float | None,
    typer.Option(metavar="FACTOR", show_default=False, help="Dense time over pruned time, at least."),
]
Cap = Annotated[
    list[str] | None,
    typer.Option(
        metavar="LAYER=SHARE",
        show_default="0.95 everywhere",
        help="Highest sparsity of a layer under a latency budget; can be repeated.",
    ),
]
ModelTokens = Annotated[
    int | None,
    typer.Option(
        "--tokens",
        "-n",
        metavar="N",
        show_default="4096; 512 a sequence of a standard model",
        help="Tokens that the latency is for.",
    ),
]
ModelBatch = Annotated[
    int, typer.Option(metavar="N", help="Images or sequences, where WEIGHTS names a standard model.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Csv = Annotated[bool, typer.Option("--csv", help="Print CSV instead of a table.")]
Output = Annotated[
    str | None,
    typer.Option(
        "--output", "-o", metavar="FILE", show_default=False, help="Also write FILE, .json or .csv."
    ),
]


def conv_settings(
    input_size: list[str] | None, stride: list[str] | None, padding: list[str] | None, batch: int, conv: str
) -> "ConvSettings":
    """What the options for convolutions say together."""
    from prunecast.codesign import ConvSettings

    return ConvSettings(
        input_size=input_size or (), stride=stride or (), padding=padding or (), batch=batch, product=conv
    )

"""Options that several commands share, spelled like the fields they fill."""

from typing import Annotated

import typer

__all__ = [
    "Csv",
    "Dtype",
    "Engine",
    "Gpu",
    "Ignore",
    "Json",
    "Kernels",
    "Launch",
    "Output",
    "Pattern",
    "Scope",
    "Sparsity",
    "State",
    "Target",
    "Tokens",
    "Weights",
]

Weights = Annotated[
    str,
    typer.Argument(
        metavar="WEIGHTS",
        show_default=False,
        help="File with weight matrices (M, K), e.g. .safetensors or .npz.",
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
    typer.Option(metavar="TEXT", show_default="bf16 for bf16 weights, else fp16", help="fp16, bf16 or fp32."),
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
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Csv = Annotated[bool, typer.Option("--csv", help="Print CSV instead of a table.")]
Output = Annotated[
    str | None,
    typer.Option(
        "--output", "-o", metavar="FILE", show_default=False, help="Also write FILE, .json or .csv."
    ),
]

"""Options that several commands share, spelled like the fields they fill, and the records they come in."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prunecast.cli import completion
from prunecast.cli.guard import Reads, file_written, gpu_files, weight_files
from prunecast.cli.output import Destination
from prunecast.errors import BadInput

if TYPE_CHECKING:
    from prunecast.workload.layers import Source

Weights = Annotated[
    str,
    typer.Argument(
        metavar="WEIGHTS",
        autocompletion=completion.weights,
        show_default=False,
        help="Weight matrices (M, K) or filters (out, in, kh, kw): a folder of .safetensors, a file"
        " .safetensors, .npz, .npy, .mtx, .smtx, .onnx or .pt, or the name of a standard model.",
    ),
    Reads(weight_files),
]
Gpu = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        autocompletion=completion.gpus,
        help="GPU name, see `prunecast gpus`, or path of a spec file.",
    ),
    Reads(gpu_files),
]
Sparsity = Annotated[
    float | None,
    typer.Option(metavar="SHARE", show_default="0.75, 2:4 always 0.5", help="Share of weights to remove."),
]
Scope = Annotated[
    str,
    typer.Option(
        metavar="TEXT", help="layer: the same sparsity in each; global: the least important of all."
    ),
]
Engine = Annotated[
    str, typer.Option(metavar="TEXT", help="simulator, or model: closed form, faster, coarser.")
]
State = Annotated[
    str,
    typer.Option(
        metavar="TEXT",
        help="SM clock. burst: that of runs with rests; sustained: at the power limit, as in a busy server.",
    ),
]
Launch = Annotated[
    str, typer.Option(metavar="TEXT", help="How kernels are launched: graph (CUDA graph) or stream.")
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
Workload = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        show_default=False,
        help="In place of tokens and batch: prefill:2048, decode:16@4096, batch:8, or a mix like"
        " prefill:2048=1,decode:16@4096=200.",
    ),
]
Runtime = Annotated[
    str,
    typer.Option(
        metavar="TEXT",
        help="What runs a whole model: engine, operators fused around every kernel; or torch, as"
        " torch.compile and prunecast.torch.sparsify run it.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class Form:
    """How a result is printed."""

    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV instead of a table.")] = False

    def destination(self) -> Destination:
        """Return the destination of the report; refuse options that contradict each other."""
        if self.as_json and self.as_csv:
            raise BadInput("--json and --csv exclude each other; -o writes the second form to a file")
        return Destination("json" if self.as_json else "csv" if self.as_csv else "table")


@dataclass(frozen=True, kw_only=True)
class Printed(Form):
    """How a result is printed, and the file that it is written to as well."""

    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="FILE", show_default=False, help="Also write FILE, .json or .csv."
        ),
        file_written(".json", ".csv"),
    ] = None

    def destination(self) -> Destination:
        """Return the destination of the report, with its file."""
        return super().destination()._replace(path=None if self.output is None else Path(self.output))


@dataclass(frozen=True, kw_only=True)
class Read:
    """How weights are read."""

    transpose: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            show_default="Conv1D of GPT-2, kernels of Flax",
            help="Tensor stored as (K, M), or re:REGEX; can be repeated.",
        ),
    ] = None

    def source(self, weights: str) -> "Source":
        """The weights, some of them transposed."""
        from prunecast.workload.layers import Transposed

        return Transposed(weights=weights, names=self.transpose) if self.transpose else weights


@dataclass(frozen=True, kw_only=True)
class Layer(Read):
    """What is predicted of a layer, whatever the kernel and the GPU."""

    tokens: Annotated[
        int | None,
        typer.Option(
            "--tokens",
            "-n",
            metavar="N",
            show_default="4096",
            help="Tokens: columns of B (K, N) and C (M, N).",
        ),
    ] = None
    workload: Workload = None
    sparsity: Sparsity = None
    pattern: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            show_default="each kernel's own",
            autocompletion=completion.patterns,
            help="Pattern to prune to, see `prunecast patterns`.",
        ),
    ] = None
    engine: Engine = "simulator"
    state: State = "burst"
    launch: Launch = "graph"
    dtype: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            show_default="bf16 for bf16 weights, else fp16",
            help="fp16, bf16, fp32 (CUDA cores) or tf32 (tensor cores); fp8, int8 for dense and cusparselt.",
        ),
    ] = None
    target: Target = None
    ignore: Ignore = None
    input_size: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="HxW",
            show_default="none: filters count as matrices",
            help="Input size of convolutions, or NAME=HxW, re:REGEX=HxW; can be repeated, the last one"
            " counts.",
        ),
    ] = None
    stride: Annotated[
        list[str] | None,
        typer.Option(
            metavar="S", show_default="1", help="Stride of convolutions, or NAME=S; can be repeated."
        ),
    ] = None
    padding: Annotated[
        list[str] | None,
        typer.Option(
            metavar="P", show_default="half the filter", help="Padding, or NAME=P; can be repeated."
        ),
    ] = None
    batch: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            show_default="1; 8 with a standard model",
            help="Images of convolutions, or sequences of a standard model.",
        ),
    ] = None
    conv: Annotated[
        str,
        typer.Option(
            metavar="TEXT",
            help="implicit: B is never written; im2col: it is, first; best: the faster one.",
        ),
    ] = "best"
    experts_per_token: Annotated[
        int, typer.Option(metavar="N", help="Experts per token, in layers of a mixture of experts.")
    ] = 2
    routing: Annotated[
        str,
        typer.Option(
            metavar="TEXT",
            help="Tokens of each expert of a model: random, balanced, or like power-law:1.2.",
        ),
    ] = "power-law:1.01"
    scales: Annotated[
        str,
        typer.Option(
            metavar="TEXT",
            help="Scales of x in fp8: tensor, static, token, block; fused: x is written in fp8.",
        ),
    ] = "tensor"

    def arguments(self) -> dict[str, Any]:
        """The options as `codesign.predict` or `codesign.explain` takes them."""
        from prunecast.workload import ConvSettings

        given = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "transpose"}
        repeated = ("target", "ignore", "input_size", "stride", "padding")
        given |= {name: given[name] or () for name in repeated}
        images = {name: given.pop(name) for name in (*repeated[2:], "batch")}
        given["convolutions"] = ConvSettings(**images, product=given.pop("conv"))
        if "kernel" in given:
            given["kernels"] = given.pop("kernel") or "all"
        return given


@dataclass(frozen=True, kw_only=True)
class Layers(Layer):
    """What is predicted of all layers, with which kernels."""

    kernel: Annotated[
        list[str] | None,
        typer.Option(
            "--kernel",
            metavar="NAME",
            show_default="all",
            autocompletion=completion.kernels,
            help="Kernel to predict; can be repeated.",
        ),
    ] = None
    scope: Scope = "layer"
    runtime: Runtime = "engine"
    l2: Annotated[
        str | None,
        typer.Option(
            "--l2",
            metavar="TEXT",
            show_default="model with a workload or a model's graph, else cold",
            help="cold: operands in DRAM; model: B in L2, weights too if all layers' fit; warm: all that"
            " fits.",
        ),
    ] = None
    power_limit: Annotated[
        float | None,
        typer.Option(
            metavar="W", show_default="the GPU's own", help="Power limit, as nvidia-smi -pl sets it."
        ),
    ] = None

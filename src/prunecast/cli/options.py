"""Options that several commands share, spelled like the fields they fill, and the records they come in."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prunecast.cli import completion
from prunecast.cli.output import Destination, destination
from prunecast.errors import BadInput

if TYPE_CHECKING:
    from prunecast.codesign.layers import Source
    from prunecast.codesign.search import Targets

Weights = Annotated[
    str,
    typer.Argument(
        metavar="WEIGHTS",
        autocompletion=completion.weights,
        show_default=False,
        help="Weight matrices (M, K) or filters (out, in, kh, kw): a folder of .safetensors, a file"
        " .safetensors, .npz, .npy, .mtx, .smtx, .onnx or .pt, or the name of a standard model.",
    ),
]
Gpu = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        autocompletion=completion.gpus,
        help="GPU name, see `prunecast gpus`, or path of a spec file.",
    ),
]
Tokens = Annotated[
    int | None,
    typer.Option("--tokens", "-n", metavar="N", show_default="4096", help="Tokens: columns of B and C."),
]
Sparsity = Annotated[
    float | None,
    typer.Option(metavar="SHARE", show_default="0.75, 2:4 always 0.5", help="Share of weights to remove."),
]
Pattern = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        show_default="each kernel's own",
        autocompletion=completion.patterns,
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
    typer.Option(
        "--kernel",
        metavar="NAME",
        show_default="all",
        autocompletion=completion.kernels,
        help="Kernel to predict; can be repeated.",
    ),
]
Engine = Annotated[
    str, typer.Option(metavar="TEXT", help="simulator, or model: closed form, faster, coarser.")
]
State = Annotated[
    str,
    typer.Option(
        metavar="TEXT", help="burst: rests between runs; sustained: power limited, as in a busy server."
    ),
]
Launch = Annotated[str, typer.Option(metavar="TEXT", help="graph or stream: how the kernel is launched.")]
L2 = Annotated[
    str,
    typer.Option(
        "--l2",
        metavar="TEXT",
        help="cold: operands in DRAM; model: B in L2, weights too if all layers' fit; warm: all that fits.",
    ),
]
PowerLimit = Annotated[
    float | None,
    typer.Option(metavar="W", show_default="the GPU's own", help="Power limit, as nvidia-smi -pl sets it."),
]
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
Transpose = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        show_default="Conv1D of GPT-2, kernels of Flax",
        help="Matrix that lies (K, M), or re:REGEX; can be repeated.",
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
        help="What runs a standard model: engine, operators fused around every kernel; or torch, as"
        " torch.compile and prunecast.torch.sparsify run it.",
    ),
]
Calibrate = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        show_default=False,
        help="Mean squares of each layer's inputs, see prunecast.torch.input_squares: importance knows them.",
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


@dataclass(frozen=True, kw_only=True)
class Form:
    """How a result is printed."""

    as_json: Json = False
    as_csv: Csv = False

    def destination(self) -> Destination:
        """Where the report goes; says what contradicts itself before any work is done."""
        return destination(self.as_json, self.as_csv, None)


@dataclass(frozen=True, kw_only=True)
class Printed(Form):
    """How a result is printed, and the file that it is written to as well."""

    output: Output = None

    def destination(self) -> Destination:
        """Where the report goes, `output` checked too."""
        return destination(self.as_json, self.as_csv, self.output)


@dataclass(frozen=True, kw_only=True)
class Read:
    """How weights are read."""

    transpose: Transpose = None

    def source(self, weights: str) -> "Source":
        """The weights, some of them transposed."""
        from prunecast.codesign.layers import Transposed

        return Transposed(weights=weights, names=self.transpose) if self.transpose else weights


@dataclass(frozen=True, kw_only=True)
class Layer(Read):
    """What is predicted of a layer, whatever the kernel and the GPU."""

    tokens: Tokens = None
    workload: Workload = None
    sparsity: Sparsity = None
    pattern: Pattern = None
    engine: Engine = "simulator"
    state: State = "burst"
    launch: Launch = "graph"
    dtype: Dtype = None
    target: Target = None
    ignore: Ignore = None
    input_size: InputSize = None
    stride: Stride = None
    padding: Padding = None
    batch: Batch = 1
    conv: Conv = "best"
    experts_per_token: ExpertsPerToken = 2

    def arguments(self) -> dict[str, Any]:
        """The options as `codesign.explain` takes them."""
        from prunecast.codesign import ConvSettings

        convolutions = ConvSettings(
            input_size=self.input_size or (),
            stride=self.stride or (),
            padding=self.padding or (),
            batch=self.batch,
            product=self.conv,
        )
        names = ("tokens", "workload", "sparsity", "pattern", "engine", "state", "launch", "dtype")
        return {
            **{name: getattr(self, name) for name in names},
            "experts_per_token": self.experts_per_token,
            "target": self.target or (),
            "ignore": self.ignore or (),
            "convolutions": convolutions,
        }


@dataclass(frozen=True, kw_only=True)
class Layers(Layer):
    """What is predicted of all layers, with which kernels."""

    kernel: Kernels = None
    scope: Scope = "layer"
    runtime: Runtime = "engine"
    l2: L2 = "cold"
    power_limit: PowerLimit = None

    def arguments(self) -> dict[str, Any]:
        """The options as `codesign.predict` takes them."""
        names = ("scope", "runtime", "l2", "power_limit")
        own = {"kernels": self.kernel or "all", **{name: getattr(self, name) for name in names}}
        return {**super().arguments(), **own}


@dataclass(frozen=True, kw_only=True)
class Budget(Read):
    """A time that a pruned model is to have, and how it is predicted."""

    latency: Latency = None
    speedup: Speedup = None
    cap: Cap = None
    gpu: Gpu = "h200-sxm"
    tokens: ModelTokens = None
    batch: ModelBatch = 8
    workload: Workload = None
    runtime: Runtime = "engine"
    engine: Engine = "simulator"
    calibrate: Calibrate = None
    target: Target = None
    ignore: Ignore = None

    def targets(self, sparsity: float | None) -> "Targets":
        """What is wanted of the model. Raises BadInput for a latency of another form."""
        from prunecast.codesign.search import Targets, parse_latency

        time = None if self.latency is None else parse_latency(self.latency)
        return Targets(
            latency_share=time and time.share,
            latency_s=time and time.seconds,
            speedup=self.speedup,
            sparsity=sparsity,
        )

    def arguments(self) -> dict[str, Any]:
        """The options as `codesign.search.prune_model` takes them beside the targets."""
        names = ("gpu", "tokens", "batch", "workload", "runtime", "engine", "calibrate")
        return {
            **{name: getattr(self, name) for name in names},
            "caps": _caps(self.cap or ()),
            "target": self.target or (),
            "ignore": self.ignore or (),
        }


def _caps(texts: Sequence[str]) -> dict[str, float]:
    """Layer -> most sparsity, from `LAYER=SHARE`. Raises BadInput for a text of another form."""
    caps = {}
    for text in texts:
        name, _, share = text.rpartition("=")
        try:
            caps[name] = float(share)
        except ValueError:
            raise BadInput(f"--cap must be like LAYER=0.8, got {text!r}") from None
        if not name or not 0.0 <= caps[name] < 1.0:
            raise BadInput(f"--cap must be like LAYER=0.8, from 0 to below 1, got {text!r}")
    return caps

"""Options that several commands share, as annotated types and as dataclasses of options.

The name of a field is the name of the option, unless its annotation has another spelling.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prunecast.cli import completion
from prunecast.cli.guard import Reads, file_written, gpu_files, weight_files
from prunecast.errors import BadInput
from prunecast.settings import SETTINGS

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


def option(metavar: str | None, help: str, *names: str, default: str | bool = True, **more: Any) -> Any:
    """Return an option of the command line.

    Parameters
    ----------
    metavar : placeholder for the value in the help; None for an option without a value
    names : spellings of the option, such as `--output`; if empty, it is spelled as the parameter
    default : text that the help shows as the default; True to show the default value, False to show nothing
    more : keyword arguments of `typer.Option`
    """
    # Typer itself would print this text in additional brackets
    words = f"{help}  [default: {default}]" if isinstance(default, str) else help
    return typer.Option(*names, metavar=metavar, show_default=default is True, help=words, **more)


def flag(help: str, *names: str, default: str | bool = True) -> Any:
    """Return a command-line option without a value; the parameters are those of `option`."""
    return option(None, help, *names, default=default)


def named_numbers(name: str, texts: Sequence[str], *, like: str) -> dict[str, float]:
    """Return name -> number from the texts `NAME=NUMBER` of a repeated option.

    Parameters
    ----------
    name : name of the option, for messages
    like : an example of a text, for messages

    Raises
    ------
    BadInput : a text without a name or a number, or a name that is given twice
    """
    found: dict[str, float] = {}
    for text in texts:
        key, _, number = text.rpartition("=")
        if key in found:
            raise BadInput(f"{name} {key} is given twice: {found[key]:g} and {number}")
        try:
            found[key] = float(number)
        except ValueError:
            key = ""
        if not key:
            raise BadInput(f"{name} must be like {like}, got {text!r:.80}")
    return found


def setting(name: str, *flags: str, is_repeated: bool = False, **more: Any) -> Any:
    """Return the command-line option for the setting `name` of `prunecast.settings`, with its description."""
    one = SETTINGS[name]
    what = f"{one.help[:-1]}; can be repeated." if is_repeated else one.help
    return option(one.metavar, what, *flags, default=one.shown or True, **more)


DEFAULTS: dict[str, Any] = {name: one.default or None for name, one in SETTINGS.items()}
"""Name of a setting -> default value of its option; None if the option can be repeated."""
Gpu = Annotated[str, setting("gpu", autocompletion=completion.gpus), Reads(gpu_files)]
Sparsity = Annotated[float | None, setting("sparsity")]
Scope = Annotated[str, setting("scope")]
Pattern = Annotated[str | None, setting("pattern", autocompletion=completion.patterns)]
Engine = Annotated[str, setting("engine")]
State = Annotated[str, setting("state")]
Launch = Annotated[str, setting("launch")]
Target = Annotated[list[str] | None, setting("target", is_repeated=True)]
Ignore = Annotated[list[str] | None, setting("ignore", is_repeated=True)]
Workload = Annotated[str | None, setting("workload")]
Runtime = Annotated[str | None, setting("runtime")]


@dataclass(frozen=True, kw_only=True)
class PrintForm:
    """Options for the printed form of a result."""

    as_json: Annotated[bool, flag("Print JSON instead of a table.", "--json")] = False
    as_csv: Annotated[bool, flag("Print CSV instead of a table.", "--csv")] = False

    def __post_init__(self) -> None:
        if self.as_json and self.as_csv:
            raise BadInput("--json and --csv exclude each other; -o writes the second form to a file")

    @property
    def path(self) -> Path | None:
        """File to which the result is also written; None for no file."""
        return None


@dataclass(frozen=True, kw_only=True)
class Printed(PrintForm):
    """Options for the printed form of a result and for a file with it."""

    output: Annotated[
        str | None,
        option("FILE", "Also write FILE, .json or .csv.", "--output", "-o", default=False),
        file_written(".json", ".csv"),
    ] = None

    @property
    def path(self) -> Path | None:
        """File to which the result is also written; None for no file."""
        return None if self.output is None else Path(self.output)


@dataclass(frozen=True, kw_only=True)
class Read:
    """Options for reading weights."""

    transpose: Annotated[
        list[str] | None,
        option(
            "NAME",
            "Tensor stored as (K, M), or re:REGEX; can be repeated.",
            default="Conv1D of GPT-2, kernels of Flax",
        ),
    ] = None

    remove: Annotated[
        list[str] | None,
        option(
            "PART[:SHARE]",
            "Part of a transformer to remove: heads:0.25, widths:0.25 (feed-forward), layers:0.25 or"
            " experts:0.25; /uneven removes more where it costs least; can be repeated.",
            default="none",
        ),
    ] = None

    def source(self, weights: str) -> "Source":
        """Return the source of weights for functions of the library.

        It is `weights`, wrapped in `Transposed` or `Removed` if these options are given.
        """
        from prunecast.workload.layers import Removed, Transposed

        if self.remove and self.transpose:
            raise BadInput(
                f"--remove {self.remove[0]} and --transpose {self.transpose[0]} exclude each other"
            )
        if self.remove:
            return Removed(weights=weights, parts=self.remove, calibrate=getattr(self, "calibrate", None))
        return Transposed(weights=weights, names=self.transpose) if self.transpose else weights


@dataclass(frozen=True, kw_only=True)
class LayerOptions(Read):
    """Options for the prediction of layers, except kernels, engine, GPU and launch mode."""

    tokens: Annotated[int | None, setting("tokens", "--tokens", "-n")] = DEFAULTS["tokens"]
    workload: Workload = DEFAULTS["workload"]
    sparsity: Sparsity = DEFAULTS["sparsity"]
    pattern: Pattern = DEFAULTS["pattern"]
    state: State = DEFAULTS["state"]
    dtype: Annotated[str | None, setting("dtype")] = DEFAULTS["dtype"]
    target: Target = DEFAULTS["target"]
    ignore: Ignore = DEFAULTS["ignore"]
    input_size: Annotated[
        list[str] | None,
        option(
            "HxW",
            "Input size of convolutions, or NAME=HxW, re:REGEX=HxW; can be repeated, the last one counts.",
            "--input",
            default="none: filters count as matrices",
        ),
    ] = None
    stride: Annotated[
        list[str] | None, option("S", "Stride of convolutions, or NAME=S; can be repeated.", default="1")
    ] = None
    padding: Annotated[
        list[str] | None, option("P", "Padding, or NAME=P; can be repeated.", default="half the filter")
    ] = None
    batch: Annotated[
        int | None,
        option(
            "N",
            "Images of convolutions, or sequences of a standard model.",
            default="1; 8 with a standard model",
        ),
    ] = None
    conv: Annotated[
        str, option("TEXT", "implicit: B is never written; im2col: it is, first; best: the faster one.")
    ] = "best"
    experts_per_token: Annotated[int | None, setting("experts_per_token")] = DEFAULTS["experts_per_token"]
    routing: Annotated[str, setting("routing")] = DEFAULTS["routing"]
    scales: Annotated[str, setting("scales")] = DEFAULTS["scales"]
    tensor_parallel: Annotated[int, setting("tensor_parallel")] = DEFAULTS["tensor_parallel"]

    def arguments(self) -> dict[str, Any]:
        """Return the options as keyword arguments of `codesign.predict` or `codesign.explain`."""
        from prunecast.workload import ConvSettings

        given = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name not in ("transpose", "remove")
        }
        repeated = ("target", "ignore", "input_size", "stride", "padding")
        given |= {name: given[name] or () for name in repeated}
        images = {name: given.pop(name) for name in (*repeated[2:], "batch")}
        given["convolutions"] = ConvSettings(**images, product=given.pop("conv"))
        if "kernel" in given:
            given["kernels"] = given.pop("kernel") or "all"
        return given


@dataclass(frozen=True, kw_only=True)
class Layers(LayerOptions):
    """Options for the prediction of all layers, except the GPU."""

    kernel: Annotated[
        list[str] | None, setting("kernels", "--kernel", is_repeated=True, autocompletion=completion.kernels)
    ] = None
    engine: Engine = DEFAULTS["engine"]
    scope: Scope = DEFAULTS["scope"]
    runtime: Runtime = DEFAULTS["runtime"]
    launch: Launch = DEFAULTS["launch"]
    l2: Annotated[str | None, setting("l2", "--l2")] = DEFAULTS["l2"]
    power_limit: Annotated[float | None, setting("power_limit")] = DEFAULTS["power_limit"]

"""`PredictSettings`: the settings of a prediction, each with its type, default value and description.

`predict` and the functions that call it accept them as keywords, and the command line derives its options
from them. Only type checkers import the packages that define the types, so that `--help` stays fast.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from inspect import Parameter
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, get_args

if TYPE_CHECKING:
    from prunecast.hardware import GpuSpec
    from prunecast.workload.conv_settings import ConvSettings


@dataclass(frozen=True, slots=True)
class Setting:
    """Description of one setting.

    Parameters
    ----------
    help : description in one or two lines
    default : value of the setting if none is given
    shown : text for a default that depends on other settings
    metavar : placeholder for the value in the help of a command
    """

    help: str
    default: Any = None
    shown: str | None = None
    metavar: str = "TEXT"

    @property
    def words(self) -> str:
        """The default value as text."""
        return self.shown or ("none" if self.default in (None, Parameter.empty) else f"{self.default}")


class LayerSettings(TypedDict, total=False):
    """All settings of a prediction except the GPU."""

    tokens: Annotated[
        int | None,
        Setting(
            "Tokens of each sequence of a model; of matrices columns of B (K, N) and C (M, N).",
            None,
            "4096",
            "N",
        ),
    ]
    workload: Annotated[
        str | None,
        Setting(
            "In place of tokens and batch: prefill:2048, decode:16@4096, batch:8, or a mix like"
            " prefill:2048=1,decode:16@4096=200."
        ),
    ]
    runtime: Annotated[
        str | None,
        Setting(
            "What runs a whole model: torch, as torch.compile and prunecast.torch.sparsify run it; or"
            " engine, operators fused around every kernel.",
            None,
            "torch where its launches are known",
        ),
    ]
    sparsity: Annotated[
        float | None, Setting("Share of weights to remove.", None, "0.75, 2:4 always 0.5", "SHARE")
    ]
    pattern: Annotated[
        str | None, Setting("Pattern to prune to, see `prunecast patterns`.", None, "each kernel's own")
    ]
    kernels: Annotated[str | Sequence[str], Setting("Kernel to predict.", "all", "all", "NAME")]
    engine: Annotated[str, Setting("simulator, or model: closed form, faster, coarser.", "simulator")]
    state: Annotated[
        str,
        Setting(
            "SM clock. burst: that of runs with rests; sustained: at the power limit, as in a busy server.",
            "burst",
        ),
    ]
    launch: Annotated[str, Setting("How kernels are launched: graph (CUDA graph) or stream.", "graph")]
    l2: Annotated[
        str | None,
        Setting(
            "cold: operands in DRAM; model: B in L2, weights too if all layers' fit; warm: all that fits.",
            None,
            "model with a workload or a graph in an engine, else cold",
        ),
    ]
    power_limit: Annotated[
        float | None, Setting("Power limit, as nvidia-smi -pl sets it.", None, "the GPU's own", "W")
    ]
    dtype: Annotated[
        str | None,
        Setting(
            "fp16, bf16, fp32 (CUDA cores) or tf32 (tensor cores); fp8 (tiles too), int8 for dense and "
            "cusparselt.",
            None,
            "bf16 for bf16 weights, else fp16",
        ),
    ]
    scope: Annotated[
        str, Setting("layer: the same sparsity in each; global: the least important of all.", "layer")
    ]
    target: Annotated[str | Sequence[str], Setting("Layer to take, or re:REGEX.", (), "all", "NAME")]
    ignore: Annotated[str | Sequence[str], Setting("Layer to leave out, or re:REGEX.", (), "none", "NAME")]
    convolutions: Annotated[
        "ConvSettings",
        Setting("Input sizes, strides, padding and batch of filters.", None, "filters count as matrices"),
    ]
    experts_per_token: Annotated[
        int | None,
        Setting("Experts per token, where no configuration states it.", None, "2", "N"),
    ]
    routing: Annotated[
        str,
        Setting(
            "Tokens of each expert of a model: random, balanced, or like power-law:1.2.", "power-law:1.01"
        ),
    ]
    scales: Annotated[
        str,
        Setting("Scales of x in fp8: tensor, static, token, block; fused: x is written in fp8.", "tensor"),
    ]
    tensor_parallel: Annotated[
        int,
        Setting("GPUs of a node that share each layer of a model by name: 2, 4 or 8.", 1, metavar="GPUS"),
    ]


class PredictSettings(LayerSettings):
    """All settings of a prediction. Only the GPU has no default."""

    gpu: Annotated[
        "str | GpuSpec",
        Setting("GPU name, see `prunecast gpus`, or path of a spec file.", Parameter.empty, metavar="NAME"),
    ]


SETTINGS: dict[str, Setting] = {
    name: get_args(kind)[1] for name, kind in PredictSettings.__annotations__.items()
}
"""Name of each setting -> its description."""

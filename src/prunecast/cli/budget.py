"""`Budget`: options of the commands that prune a model to a time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from prunecast.cli import options as opt
from prunecast.cli.guard import Reads
from prunecast.errors import BadInput

if TYPE_CHECKING:
    from prunecast.codesign.search import Targets


@dataclass(frozen=True, kw_only=True)
class Budget(opt.Read):
    """Options for the latency budget of a pruned model, and for the prediction of its latency."""

    latency: Annotated[
        str | None,
        opt.option("TIME", "Latency budget: 60% of the dense time, 850us or 1.2ms.", default=False),
    ] = None
    speedup: Annotated[
        float | None, opt.option("FACTOR", "Dense time over pruned time, at least.", default=False)
    ] = None
    cap: Annotated[
        list[str] | None,
        opt.option(
            "LAYER=SHARE",
            "Highest sparsity of a layer under a latency budget; can be repeated.",
            default="0.95 everywhere",
        ),
    ] = None
    gpu: opt.Gpu = "h200-sxm"
    tokens: Annotated[
        int | None,
        opt.option(
            "N",
            "Tokens that the latency is for; of each sequence of a model.",
            "--tokens",
            "-n",
            default="4096; 512 of each sequence of a model",
        ),
    ] = None
    batch: Annotated[
        int | None, opt.option("N", "Images or sequences of a model.", default="8; 1 with --tokens")
    ] = None
    workload: opt.Workload = None
    runtime: opt.Runtime = None
    engine: opt.Engine = "simulator"
    calibrate: Annotated[
        str | None,
        opt.option(
            "FILE",
            "Mean squares of each layer's inputs (prunecast.torch.input_squares): importance knows them;"
            " or second moments (input_moments): kept weights are updated too.",
            default=False,
        ),
        Reads(),
    ] = None
    target: opt.Target = None
    ignore: opt.Ignore = None

    def targets(self, sparsity: float | None) -> "Targets":
        """Return the targets that the options request. Raises BadInput for an invalid latency."""
        from prunecast.codesign.search import Targets, parse_latency

        time = None if self.latency is None else parse_latency(self.latency)
        return Targets(
            latency_share=time and time.share,
            latency_s=time and time.seconds,
            speedup=self.speedup,
            sparsity=sparsity,
        )

    def arguments(self) -> dict[str, Any]:
        """Return the options as keyword arguments of `codesign.search.prune_model`, except the targets."""
        names = ("gpu", "tokens", "batch", "workload", "runtime", "engine", "calibrate")
        return {
            **{name: getattr(self, name) for name in names},
            "caps": _caps(self.cap or ()),
            "target": self.target or (),
            "ignore": self.ignore or (),
        }


def _caps(texts: Sequence[str]) -> dict[str, float]:
    """Return layer -> highest sparsity from texts `LAYER=SHARE`. Raises BadInput for other texts."""
    caps = opt.named_numbers("--cap", texts, like="LAYER=0.8")
    for name, share in caps.items():
        if not 0.0 <= share < 1.0:
            raise BadInput(f"--cap must be like LAYER=0.8, from 0 to below 1, got {name}={share:g}")
    return caps

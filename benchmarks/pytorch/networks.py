"""Are whole convolutional networks faster? pruned, against the best dense run.

    python -m benchmarks.pytorch.networks [--out FILE.json] [--compile] [NETWORK:IMAGES ...]
    python -m benchmarks.pytorch.networks --build      # plans and compiles what a GPU will need, without one

Dense: channels-last, eager, in a CUDA graph, and with `--compile` compiled by torch and in a graph. Sparse:
`sparsify(..., convolutions=True)`, the same three. Bursts of 3 passes with rests, all variants in turns.
A network that is predicted to gain nothing stays dense (MobileNetV3): then all its layers are converted, to
see on the GPU whether that would have been slower, and the row has the prediction.
Every output is compared with that of the pruned weights in fp32.
"""

import argparse
import copy
import json
import time
import traceback
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from prunecast.kernels.tile.cuda.operator import TileOperator
from prunecast.torch import SparseConv2d, sparsify
from prunecast.torch.layer_plans import conv_plan
from prunecast.torch.weight_layouts import layout_of
from prunecast.validation.torch_models.timing import Forward, captured, times_us, traced

SHOWN = ("resnet50:32", "resnet50:128", "vgg16:32", "resnet18:32")
SHOWN = (*SHOWN, "unet:8", "convnext_tiny:32", "mobilenet_v3_large:32")
SPARSITY, TURNS, PASSES, REST_S = 0.75, 12, 3, 0.03
Make = Callable[[], nn.Module]


class Network(NamedTuple):
    """A network of images."""

    make: Make
    ignore: tuple[str, ...]
    """Layers that are not pruned: the first convolution, and the one that computes the output."""
    side: int = 224

    def model(self, device: str) -> nn.Module:
        """Return the model with random weights in fp16, and fixed statistics that are not neutral."""
        torch.manual_seed(0)
        model = self.make().eval()
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_(0.0, 0.05)
                module.running_var.uniform_(0.8, 1.2)
        return model.to(device).half()

    def size(self, images: int) -> tuple[int, int, int, int]:
        """Return the sizes of a batch."""
        return images, 3, self.side, self.side


class UNet(nn.Module):
    """The U-Net of O. Ronneberger et al. 2015 with padding and batch norms, as it is used today."""

    def __init__(self, widths: tuple[int, ...] = (64, 128, 256, 512, 1024), classes: int = 8) -> None:
        super().__init__()
        self.down = nn.ModuleList(map(_two_convolutions, (3, *widths), widths))
        self.up = nn.ModuleList(_two_convolutions(low + high, high) for high, low in pairwise(widths))
        self.pool, self.upsample = nn.MaxPool2d(2), nn.Upsample(scale_factor=2)
        self.head = nn.Conv2d(widths[0], classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a map of each class, of the size of the images."""
        skips = []
        for level, block in enumerate(self.down):
            x = block(self.pool(x) if level else x)
            skips.append(x)
        for skip, block in zip(skips[-2::-1], reversed(self.up), strict=True):
            x = block(torch.cat([skip, self.upsample(x)], 1))
        return self.head(x)


def _two_convolutions(channels: int, filters: int) -> nn.Module:
    layers: list[nn.Module] = []
    for before in (channels, filters):
        conv = nn.Conv2d(before, filters, 3, padding=1, bias=False)
        layers += [conv, nn.BatchNorm2d(filters), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


def _torchvision(name: str) -> Make:
    return lambda: getattr(__import__("torchvision").models, name)(weights=None)


NETWORKS = {
    "resnet50": Network(_torchvision("resnet50"), ("conv1", "fc")),
    "resnet34": Network(_torchvision("resnet34"), ("conv1", "fc")),
    "resnet18": Network(_torchvision("resnet18"), ("conv1", "fc")),
    "vgg16": Network(_torchvision("vgg16"), ("features.0", "classifier.6")),
    "convnext_tiny": Network(_torchvision("convnext_tiny"), ("features.0.0", "classifier.2")),
    "mobilenet_v3_large": Network(_torchvision("mobilenet_v3_large"), ("features.0.0", "classifier.3")),
    "unet": Network(UNet, ("down.0.0", "head"), side=256),
}


def sparse(network: Network, model: nn.Module, images: int, gpu: str, *, only_gains: bool = True) -> Any:
    """Prune and convert a model in place."""
    options = {
        "gpu": gpu,
        "max_tokens": images,
        "sparsity": SPARSITY,
        "only_gains": only_gains,
        "quiet": True,
    }
    options |= {"ignore": list(network.ignore), "example": network.size(images)}
    return sparsify(model, "tile-wise:128", convolutions=True, **options)


def build(name: str, images: int, gpu: str) -> None:
    """Compile the kernels that a network needs, without a GPU."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    network = NETWORKS[name]
    model = network.model("cpu")
    if not sparse(network, model, images, gpu).layers:
        sparse(network, model, images, gpu, only_gains=False)
    forms: set[str] = set()

    def seen(module: SparseConv2d, *_: Any) -> None:
        product = module.product
        for call in module._launches:
            layouts = [layout_of(image) for image in product.images]
            plan, _ = conv_plan(product.tile_map, call.grid, "fp16", product.gpu, layouts)
            form = TileOperator.compile_inputs(
                plan, activation=module.activation, bias=product.fp32_bias is not None, changes={}
            )
            forms.add(form.build().cubin.name)

    for module in model.modules():
        if isinstance(module, SparseConv2d):
            module.register_forward_hook(seen)
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        model(torch.empty(network.size(images), dtype=torch.half))
    print(f"{name}:{images}: {len(forms)} forms", flush=True)


def burst(run: Forward) -> Forward:
    """Return a call of several passes."""

    def several() -> torch.Tensor:
        for _ in range(PASSES - 1):
            run()
        return run()

    several.is_graph = getattr(run, "is_graph", False)  # type: ignore[attr-defined]
    return several


@torch.no_grad()
def measure(
    name: str, network: Network, images: int, gpu: str, *, compiles: bool, turns: int = TURNS
) -> dict[str, Any]:
    """Measure one network, on the CPU where there is no GPU; with no turns only compile what it runs."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x = torch.randn(network.size(images), device=device).half()
    rows = x.to(memory_format=torch.channels_last)
    pruned = network.model(device)
    start = time.monotonic()
    done = sparse(network, pruned, images, gpu)
    left_dense = None if done.layers else done.left[0]
    if left_dense is not None:
        done = sparse(network, pruned, images, gpu, only_gains=False)
    y = pruned(rows)
    if device == "cuda":
        torch.cuda.synchronize()
    begun = time.monotonic() - start
    dense = network.model(device)
    dense.load_state_dict(pruned.state_dict())
    exact = copy.deepcopy(dense).float()(x[:16].float())
    dense = folded(dense).to(memory_format=torch.channels_last)
    scale = float(exact.std())

    def error(found: torch.Tensor) -> float:
        return float((found[:16].float() - exact).std()) / scale

    models = {"dense": dense, "sparse": pruned}
    errors = {"dense": error(dense(rows)), "sparse": error(y)}
    variants: dict[str, Forward] = {}
    for kind, model in models.items():
        variants[f"{kind} eager"] = lambda model=model: model(rows)
        variants[f"{kind} graph"] = captured(lambda model=model: model(rows))
    if compiles:
        for kind, model in models.items():
            torch._dynamo.reset()
            compiled = torch.compile(model)
            errors[f"{kind} compiled"] = error(compiled(rows))
            variants[f"{kind} compiled"] = captured(lambda compiled=compiled: compiled(rows))
    if not turns:
        return {}
    bursts = times_us({each: burst(run) for each, run in variants.items()}, turns, rest_s=REST_S)
    us = {each: total / PASSES for each, total in bursts.items()}
    best = {kind: min(t for each, t in us.items() if each.startswith(kind)) for kind in models}
    row = {
        "network": name,
        "device": device,
        "images": images,
        "layers": len(done.layers),
        "left_dense": left_dense,
        "first_call_s": begun,
        "us": us,
        "speedup": best["dense"] / best["sparse"],
        "errors": errors,
    }
    if device == "cuda":
        fastest = {kind: min((n for n in us if n.startswith(kind)), key=us.__getitem__) for kind in models}
        traces = {kind: traced(variants[name]) for kind, name in fastest.items()}
        row["traced"] = fastest
        row["busy_us"] = {kind: trace.busy_us for kind, trace in traces.items()}
        row["ends"] = {kind: trace.record()["ends"] for kind, trace in traces.items()}
    return row


def folded(model: nn.Module) -> nn.Module:
    """Return the dense model with its batch norms folded by torch."""
    from torch.fx.experimental.optimization import fuse

    return fuse(model)


def main() -> None:
    """Measure, or build."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("networks", nargs="*", default=SHOWN, metavar="NETWORK:IMAGES")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--gpu", default="h200-sxm")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--build", action="store_true")
    parser.add_argument("--turns", type=int, default=TURNS, help="0: only compile, into torch's caches")
    given = parser.parse_args()
    if not (given.build or torch.cuda.is_available()):
        parser.error("needs a GPU; without one only --build runs")
    torch.backends.cudnn.benchmark = True
    found = []
    for each in given.networks:
        name, _, images = each.partition(":")
        if given.build:
            build(name, int(images), given.gpu)
            continue
        try:
            result = measure(
                name, NETWORKS[name], int(images), given.gpu, compiles=given.compile, turns=given.turns
            )
        except Exception:  # the other networks are measured all the same
            print(each, traceback.format_exc()[-2000:], flush=True)
            continue
        if not given.turns:
            continue
        found.append(result)
        if given.out is not None:
            given.out.write_text(json.dumps(found, indent=1))
        times = ", ".join(f"{key} {value:.0f}" for key, value in result["us"].items())
        print(f"{each}: {result['speedup']:.2f}; us: {times}; {result['errors']}", flush=True)
        if result["left_dense"] is not None:
            print(
                f"    left dense by default, converted here to measure it: {result['left_dense']}", flush=True
            )


if __name__ == "__main__":
    main()

"""Are whole convolutional networks faster? torchvision's models, pruned, against the best dense run.

    python -m benchmarks.pytorch.networks [--out FILE.json] [--compile] [NETWORK:IMAGES ...]
    python -m benchmarks.pytorch.networks --build      # plans and compiles what a GPU will need, without one

Dense: channels-last, eager, in a CUDA graph, and with `--compile` compiled by torch and in a graph. Sparse:
`sparsify(..., convolutions=True)`, the same three. Bursts of 3 passes with rests, all variants in turns.
Every output is compared with that of the pruned weights in fp32.
"""

import argparse
import copy
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from prunecast.kernels.tile.cuda.operator import TileOperator
from prunecast.torch import SparseConv2d, sparsify
from prunecast.torch.forms import conv_plan
from prunecast.torch.images import layout_of

NETWORKS = ("resnet50:32", "resnet50:128", "vgg16:32", "resnet18:32")
SPARSITY, TURNS, PASSES, REST_S = 0.75, 12, 3, 0.03
SIDE = 224
FIRST = {"resnet50": "conv1", "resnet18": "conv1", "resnet34": "conv1", "vgg16": "features.0"}
"""Convolutions of the image, which stay dense."""


def network(name: str, device: str) -> torch.nn.Module:
    """A model with random weights and fixed statistics that are not neutral."""
    torchvision = __import__("torchvision")
    torch.manual_seed(0)
    model = getattr(torchvision.models, name)(weights=None).eval()
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_(0.0, 0.05)
            module.running_var.uniform_(0.8, 1.2)
    return model.to(device).half()


def sparse(model: torch.nn.Module, name: str, images: int, gpu: str) -> Any:
    """Prune and convert a model in place."""
    ignore = [FIRST[name], *(["classifier.6"] if name == "vgg16" else ["fc"])]
    options = {"gpu": gpu, "max_tokens": images, "sparsity": SPARSITY, "ignore": ignore}
    return sparsify(model, "tile-wise:128", convolutions=True, example=(images, 3, SIDE, SIDE), **options)


def build(name: str, images: int, gpu: str) -> None:
    """Compile the kernels that a network needs, without a GPU."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    model = network(name, "cpu")
    sparse(model, name, images, gpu)
    forms: set[str] = set()

    def seen(module: SparseConv2d, *_: Any) -> None:
        product = module.product
        for call in module._launches:
            layouts = [layout_of(image) for image in product.images]
            plan, _ = conv_plan(product.tile_map, call.grid, "fp16", product.gpu, layouts)
            form = TileOperator.form(
                plan, activation=module.activation, bias=product.fp32_bias is not None, changes={}
            )
            forms.add(form.build().cubin.name)

    for module in model.modules():
        if isinstance(module, SparseConv2d):
            module.register_forward_hook(seen)
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        model(torch.empty(images, 3, SIDE, SIDE, dtype=torch.half))
    print(f"{name}:{images}: {len(forms)} forms", flush=True)


def graphed(call: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> Callable[[], object]:
    """A replay of a captured pass."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            call(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call(x)
    return graph.replay


def timed(variants: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Median microseconds of a pass of each, in turns."""
    found: dict[str, list[float]] = {name: [] for name in variants}
    for turn in range(TURNS + 1):
        for name, run in variants.items():
            torch.cuda.synchronize()
            time.sleep(REST_S)
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            run()
            start.record()
            for _ in range(PASSES):
                run()
            end.record()
            end.synchronize()
            if turn:
                found[name].append(1e3 * start.elapsed_time(end) / PASSES)
    return {name: statistics.median(each) for name, each in found.items()}


def profile(run: Callable[[], object]) -> list[dict[str, Any]]:
    """Kernels of one pass: name, launches, microseconds."""
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as trace:
        for _ in range(3):
            run()
        torch.cuda.synchronize()
    rows = [
        {"name": event.key[:90], "launches": event.count / 3, "us": event.device_time_total / 3}
        for event in trace.key_averages()
        if event.device_time_total
    ]
    return sorted(rows, key=lambda row: -row["us"])


def launches(run: Callable[[], object]) -> list[dict[str, Any]]:
    """Kernels of one pass in their order."""
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as trace:
        run()
        torch.cuda.synchronize()
    events = [e for e in trace.events() if e.device_time_total]
    return [
        {"name": e.name[:60], "us": e.device_time_total}
        for e in sorted(events, key=lambda e: e.time_range.start)
    ]


@torch.no_grad()
def measure(name: str, images: int, gpu: str, *, compiles: bool) -> dict[str, Any]:
    """One network."""
    x = torch.randn(images, 3, SIDE, SIDE, device="cuda", dtype=torch.half)
    rows = x.to(memory_format=torch.channels_last)
    pruned = network(name, "cuda")
    start = time.monotonic()
    done = sparse(pruned, name, images, gpu)
    y = pruned(rows)
    torch.cuda.synchronize()
    begun = time.monotonic() - start
    dense = network(name, "cuda")
    dense.load_state_dict(pruned.state_dict())
    exact = copy.deepcopy(dense).float()(x[:16].float())
    dense = folded(dense).to(memory_format=torch.channels_last)
    wanted = dense(rows)
    scale = float(exact.std())

    def error(found: torch.Tensor) -> float:
        return float((found[:16].float() - exact).std()) / scale

    variants: dict[str, Callable[[], object]] = {
        "dense eager": lambda: dense(rows),
        "dense graph": graphed(dense, rows),
        "sparse eager": lambda: pruned(rows),
        "sparse graph": graphed(pruned, rows),
    }
    errors = {"dense": error(wanted), "sparse": error(y)}
    if compiles:
        for kind, model in (("dense", dense), ("sparse", pruned)):
            torch._dynamo.reset()
            compiled = torch.compile(model)
            errors[f"{kind} compiled"] = error(compiled(rows))
            variants[f"{kind} compiled"] = graphed(compiled, rows)
    us = timed(variants)
    best = {kind: min(t for each, t in us.items() if each.startswith(kind)) for kind in ("dense", "sparse")}
    return {
        "network": name,
        "images": images,
        "layers": len(done.layers),
        "first_call_s": begun,
        "us": us,
        "speedup": best["dense"] / best["sparse"],
        "errors": errors,
        "kernels": {kind: profile(variants[f"{kind} graph"])[:24] for kind in ("dense", "sparse")},
        "in_order": launches(lambda: pruned(rows)),
    }


def folded(model: torch.nn.Module) -> torch.nn.Module:
    """Return the dense model with its batch norms folded by torch."""
    from torch.fx.experimental.optimization import fuse

    return fuse(model)


def main() -> None:
    """Measure, or build."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("networks", nargs="*", default=NETWORKS, metavar="NETWORK:IMAGES")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--gpu", default="h200-sxm")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--build", action="store_true")
    given = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    found = []
    for each in given.networks:
        name, _, images = each.partition(":")
        if given.build:
            build(name, int(images), given.gpu)
            continue
        result = measure(name, int(images), given.gpu, compiles=given.compile)
        found.append(result)
        if given.out is not None:
            given.out.write_text(json.dumps(found, indent=1))
        times = ", ".join(f"{key} {value:.0f}" for key, value in result["us"].items())
        print(f"{each}: {result['speedup']:.2f}; us: {times}; {result['errors']}", flush=True)


if __name__ == "__main__":
    main()

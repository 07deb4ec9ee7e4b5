"""Times and traces the glyph network's pass, dense and pruned, untrained: only masks count for time.

    python examples/glyphs/time_network.py --out trace.json [--cases tile-wise:128@0.719 ...]
    python examples/glyphs/time_network.py --predict [--cases tile-wise:128@0.719 ...]    # without a GPU

A case is PATTERN@SPARSITY of every convolution but the stem, `late:` before it of the last three stages only.
`narrow@32,64,64,128` keeps so many channels between the two convolutions of each stage's blocks, and
`latency@0.75` has the masks with which `prune --latency 75%` promises 0.75 of the dense time.
"""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.append(str(Path(__file__).resolve().parents[1] / "accuracy"))

from contestants import MIXTURE, find_masks
from glyphs import CLASSES, Sizes, graph, narrowing, noise
from measured import make_sparse
from narrow import Narrowed, narrow, narrow_masks
from network import ResidualNetwork, TimedNetwork
from predicted import Predictor
from torch import nn

from prunecast.hardware import load_gpu
from prunecast.patterns import parse_pattern
from prunecast.torch import fuse_dense
from prunecast.torch.network import trace
from prunecast.torch.network_time import NetworkTime, planned_seconds
from prunecast.validation.torch_models.timing import Forward, captured, error, times_us, traced
from prunecast.workload.torch_model.read_module import read_module

CASES = ("narrow@32,64,64,128", "narrow@32,64,128,256", "late:tile-wise:128@0.719", "tile-wise:64@0.61")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--out", type=Path, help="a JSON file")
    parser.add_argument("--predict", action="store_true", help="predict the times instead, without a GPU")
    parser.add_argument("--cases", nargs="+", default=CASES)
    parser.add_argument("--gpu", default="h200-sxm")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--images", type=int, default=Sizes.timed_images)
    return parser.parse_args()


def masks_of(
    model: nn.Module, case: str, sizes: Sizes, gpu: str
) -> tuple[dict[str, Any], dict[str, str], bool]:
    """Masks and patterns of a case, of random importance, and whether units are removed whole."""
    name, _, number = case.rpartition("@")
    rng = np.random.default_rng(0)
    weights = {
        f"{n}.weight": module.weight
        for n, module in model.named_modules()
        if isinstance(module, nn.Conv2d) and n.startswith("stages.")
    }
    scores = {n: rng.random((len(w), w[0].numel()), dtype=np.float32) for n, w in weights.items()}
    if name == "narrow":
        counts = {f"stage {stage}": int(width) for stage, width in enumerate(number.split(","))}
        found = Narrowed(counts, (), 0.0)
        return narrow_masks(narrowing(sizes), scores, found), dict.fromkeys(scores, "dense"), True
    if name == "latency":
        masks = find_masks(MIXTURE, scores, float(number), Predictor(graph(sizes), gpu))
        print(f"{case}: promised {masks.predicted_share:.1%}, {masks.sparsity:.1%} removed", flush=True)
        return {n: masks.kept[n] for n in masks.patterns}, masks.patterns, False
    if name.startswith("late:"):
        name = name.removeprefix("late:")
        scores = {n: each for n, each in scores.items() if not n.startswith("stages.0.")}
    kept, patterns = {}, {}
    for n, each in scores.items():
        height = min(int(name.split(":")[1]), len(each))
        patterns[n] = f"{name.split(':')[0]}:{height}"
        kept |= parse_pattern(patterns[n]).prune({n: each}, float(number))
    return kept, patterns, False


def network(sizes: Sizes, device: str = "cuda") -> nn.Module:
    """The same random network each time, in fp16 on the device."""
    torch.manual_seed(0)
    made = ResidualNetwork(CLASSES, sizes.widths).to(device, memory_format=torch.channels_last)
    return made.half().eval().requires_grad_(False)


def compiled(model: nn.Module, images: torch.Tensor) -> Forward:
    """The timed pass as a CUDA graph."""
    torch._dynamo.reset()
    module = torch.compile(TimedNetwork(fuse_dense(model)))
    return captured(lambda: module(images))


def pruned(sizes: Sizes, case: str, gpu: str) -> tuple[nn.Module, nn.Module, float]:
    """The network with zeros, the one that is timed, and the share of weights removed."""
    zeros, model = network(sizes), network(sizes)
    kept, patterns, is_narrow = masks_of(model, case, sizes, gpu)
    for each in (zeros, model):
        for name, mask in kept.items():
            weight = each.get_parameter(name)
            weight.mul_(torch.from_numpy(mask).to(weight.device).reshape(weight.shape))
    TimedNetwork(model)  # folds norms into convolutions, as sparse ones have none
    if is_narrow:
        narrow(model, narrowing(sizes).groups, kept)
    else:
        make_sparse(model, kept, patterns, gpu, sizes.timed_images)
    total = sum(
        module.weight.numel()
        for n, module in zeros.named_modules()
        if n.startswith("stages.") and isinstance(module, nn.Conv2d)
    )
    removed = sum(int((~mask).sum()) for mask in kept.values()) / total
    return zeros, model, removed


def predict(sizes: Sizes, cases: list[str], gpu: str) -> None:
    """Print the predicted times of cases of tiles, as `sparsify` rewrites the network."""
    model, spec = network(sizes, "cpu"), load_gpu(gpu)
    read = read_module(trace(model).graph, model, [tuple(noise(sizes).shape)])
    for case in cases:
        kept, patterns, _ = masks_of(model, case, sizes, gpu)
        tiles = {n.removesuffix(".weight"): parse_pattern(patterns[n]).map(mask) for n, mask in kept.items()}
        seconds = {n: partial(planned_seconds, each, spec, "fp16") for n, each in tiles.items()}
        time = NetworkTime(read, seconds, spec, "fp16")
        own, dense = time.seconds(tiles), time.seconds()
        print(f"{case:28} {1e6 * own:8.1f} of {1e6 * dense:.1f} us {own / dense:6.1%}")


@torch.no_grad()
def main() -> None:
    options = parse_options()
    sizes = Sizes(timed_images=options.images)
    if options.predict:
        predict(sizes, [case for case in options.cases if not case.startswith("narrow")], options.gpu)
        return
    if options.out is None:
        sys.exit("--out FILE.json is needed to time the network")
    torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32 = True, False
    images = noise(sizes).cuda()
    forwards: dict[str, Forward] = {"dense": compiled(network(sizes), images)}
    about: dict[str, Any] = {"dense": {"removed": 0.0}}
    for case in options.cases:
        try:
            zeros, model, removed = pruned(sizes, case, options.gpu)
            exact = TimedNetwork(zeros.float())(images.float())
            forwards[case] = compiled(model, images)
            about[case] = {"removed": removed, "error": error(forwards[case](), exact)}
        except Exception:  # the other cases are timed all the same
            print(case, traceback.format_exc()[-1500:], flush=True)
    us = times_us(forwards, options.rounds)
    record = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "images": options.images}
    record["cases"] = {name: {"us": us[name], **about[name]} for name in us}
    options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    for name in us:
        found = traced(forwards[name])
        record["cases"][name] |= {"busy_us": found.busy_us, "span_us": found.span_us}
        record["cases"][name]["kernels"] = [list(kernel) for kernel in found.kernels]
        record["cases"][name]["ends"] = [[each[:100], *us] for each, *us in found.ends]
        options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        share, removed, off = us[name] / us["dense"], about[name]["removed"], about[name].get("error", 0.0)
        print(f"{name:28} {us[name]:8.1f} us {share:6.1%} removed {removed:5.1%} error {off:.1e}")
        for kernel in found.kernels[:14]:
            print(f"    {kernel.launches:5.1f} x {kernel.us:8.1f} us  {kernel.name[:90]}")


if __name__ == "__main__":
    main()

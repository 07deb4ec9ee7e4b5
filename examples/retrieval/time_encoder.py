"""Times the whole encoder, dense and pruned in tiles: compiled, in a CUDA graph, batch 64, length 128, fp16.

    python examples/retrieval/time_encoder.py --inputs /tmp/retrieval --out times.json

Dense has all its weights and one product for Q, K and V. Pruned models keep what magnitude keeps.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
import traceback
from pathlib import Path
from typing import Any

import torch
from encoder import Encoder, load_encoder
from torch import nn

from prunecast.torch import fuse_dense, sparsify
from prunecast.validation.torch_models.timing import Forward, captured, times_us, traced

BATCH, LENGTH = 64, 128
CASES = (
    "tile-wise:128@0.5",
    "tile-wise:128@0.75",
    "tile-wise:64@0.5",
    "tile-wise:128@0.9",
    "tile-wise:128@0.3",
    "tile-wise:64@0.75",
    "atp:128@0.75",
    "shuffled-block:64@0.75",
)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--inputs", type=Path, required=True, help="folder that prepare.py wrote")
    parser.add_argument("--out", type=Path, required=True, help="a JSON file")
    parser.add_argument("--cases", nargs="+", default=CASES, help="PATTERN@SPARSITY, or 2:4 of cuSPARSELt")
    parser.add_argument("--gpu", default="h200-sxm")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--seconds", type=float, default=1e9, help="make no model after so many")
    return parser.parse_args()


def pruned(dense: nn.Module, case: str, gpu: str) -> nn.Module:
    """A copy of the model with the products of a case."""
    model = copy.deepcopy(dense)
    if case == "2:4":
        return _two_of_four(model)
    pattern, _, sparsity = case.rpartition("@")
    most = BATCH * LENGTH
    sparsify(model, pattern, sparsity=float(sparsity), gpu=gpu, max_tokens=most, few_tokens=False)
    return model


def _two_of_four(model: nn.Module) -> nn.Module:
    """By magnitude, with PyTorch's own sparse tensors, which call cuSPARSELt."""
    for layer in model.model.encoder.modules():
        if isinstance(layer, nn.Linear):
            groups = layer.weight.detach().unflatten(1, (-1, 4))
            kept = torch.zeros_like(groups).scatter_(2, groups.abs().topk(2, 2).indices, 1.0)
            weight = torch.sparse.to_sparse_semi_structured((groups * kept).flatten(1))
            layer.weight = nn.Parameter(weight, requires_grad=False)
    return model


def compiled(model: nn.Module, ids: torch.Tensor) -> Forward:
    """Its pass, compiled with overlapping launches, as a CUDA graph."""
    torch._dynamo.reset()
    with torch._inductor.config.patch({"triton.enable_pdl": True}):
        made = torch.compile(model)
        return captured(lambda: made(ids))


@torch.no_grad()
def main() -> None:
    options, began = parse_options(), time.monotonic()
    dense = Encoder(load_encoder(options.inputs / "model", torch.float16).eval()).cuda()
    ids = torch.randint(1, dense.model.config.vocab_size, (BATCH, LENGTH), device="cuda")
    forwards: dict[str, Forward] = {"dense": compiled(fuse_dense(copy.deepcopy(dense)), ids)}
    for case in options.cases:
        if time.monotonic() - began > options.seconds:
            break
        try:
            forwards[case] = compiled(pruned(dense, case, options.gpu), ids)
        except Exception:  # the other cases are timed all the same
            print(case, traceback.format_exc()[-1500:], flush=True)
        print(f"{case}: made after {time.monotonic() - began:.0f} s", flush=True)
    write(options.out, forwards, options.rounds)


def write(out: Path, forwards: dict[str, Forward], rounds: int) -> None:
    """Times and kernels of all models, as JSON and as a short table."""
    us = times_us(forwards, rounds)
    record: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "batch": BATCH,
        "length": LENGTH,
        "us": us,
        "kernels": {name: [list(kernel) for kernel in traced(f).kernels] for name, f in forwards.items()},
    }
    out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    for name, time_us in us.items():
        print(f"{name:24} {time_us:8.1f} us  {us['dense'] / time_us:.3f}x")


if __name__ == "__main__":
    main()

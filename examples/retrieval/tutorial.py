"""The steps of docs/tutorial_prune_a_model.md that are Python's; `tutorial.sh` runs all of them in order.

calibrate   what the layers of the checkpoint are given, for `prunecast prune --calibrate`
distil      prunes the checkpoint to the masks of `prunecast prune` while it learns from itself as it was
judge       the quality of checkpoints on held-out items, with the interval of the difference
time        a pass of the pruned checkpoint beside the dense one, on the GPU
"""

from __future__ import annotations

import argparse
import copy
import sys
from collections.abc import Mapping
from itertools import count, islice
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn

sys.path.append(str(Path(__file__).resolve().parents[1] / "accuracy"))

from encoder import Encoder, load_encoder, pooled, states
from paired import interval
from retrieval import Sizes, batches, loss, ranks, read_texts
from tuning import rates, run_steps

from prunecast.codesign.recipe import read_recipe
from prunecast.codesign.schedule import gradual
from prunecast.patterns import parse_pattern
from prunecast.torch import Pruner, fuse_dense, input_squares, sparsify
from prunecast.validation.torch_models.timing import captured, times_us

CALIBRATED_BATCHES = 8
UPDATES, WARMUP = 12, 12
RATE, WEIGHT_DECAY = 3e-4, 0.01


def calibrate(asked: argparse.Namespace, device: str) -> None:
    """Mean squares of what each layer is given, scaled by what pruning that layer alone costs."""
    model = load_encoder(asked.inputs / "model").to(device).eval()
    source = batches(read_texts(asked.inputs, device), asked.sizes, 0)
    with torch.no_grad():
        known = [(batch, states(model, torch.cat(batch))) for batch in islice(source, asked.batches)]
    linear, tried = sum(isinstance(each, nn.Linear) for each in model.modules()), count()

    def run() -> None:
        for batch, _ in known:
            states(model, torch.cat(batch))

    def apart() -> float:
        print(f"loss of {linear} layers, pruned one at a time: {next(tried)}", file=sys.stderr)
        return sum(float(loss(states(model, torch.cat(batch)), dense, batch)) for batch, dense in known)

    found = input_squares(model, run, asked.out, loss=apart)
    print(f"{asked.out}: inputs of {len(found)} layers")


def distil(asked: argparse.Namespace, device: str) -> None:
    """Tune towards the states of the checkpoint; masks grow over the first half of the steps."""
    model = load_encoder(asked.inputs / "model").to(device)
    dense = copy.deepcopy(model).eval().requires_grad_(False)
    kept = _kept(asked.pruned)
    removed = 1.0 - float(np.mean(np.concatenate([mask.ravel() for mask in kept.values()])))
    updates = min(UPDATES, max(asked.steps // 2, 1))
    schedule = gradual(removed, updates=updates, every=max(asked.steps // 2 // updates, 1))
    pruner = Pruner(model, "unstructured", schedule=schedule, target=tuple(kept), final=kept)
    pruner.prepare()

    def backward(batch: tuple[torch.Tensor, ...]) -> None:
        ids = torch.cat(batch)
        with torch.autocast(device, torch.bfloat16):
            apart = loss(states(model, ids), states(dense, ids), batch)
        apart.backward()

    source = batches(read_texts(asked.inputs, device), asked.sizes, 1)
    run_steps(model, backward, source, rates(asked.steps, WARMUP, RATE), WEIGHT_DECAY, pruner)
    pruner.close()
    model.half().save_pretrained(asked.out)
    print(f"{asked.out}: {removed:.1%} of {len(kept)} matrices pruned, {asked.steps} steps")


def _kept(folder: Path) -> dict[str, np.ndarray]:
    """Masks of the pruned matrices: what is not zero, or their tiles, which may hold zeros."""
    recipe, weights = read_recipe(folder), load_file(folder / "model.safetensors")
    kept = {f"{name}.weight": (weights[f"{name}.weight"] != 0).numpy() for name in recipe.sparsities}
    for name, tiles in recipe.tiles.items():
        if parse_pattern(recipe.pattern_of(name)).keeps == "tiles":
            kept[f"{name}.weight"] = tiles.mask()
    return kept


def judge(asked: argparse.Namespace, device: str) -> None:
    """Recall@1 and the mean reciprocal rank of each checkpoint, and how far the others are from the first."""
    texts, first = read_texts(asked.inputs, device), None
    for folder in asked.models:
        found = torch.from_numpy(ranks(load_encoder(folder).to(device).eval(), texts, asked.sizes)).double()
        hits = (found == 1).double()[None]
        print(f"{folder}: recall@1 {hits.mean():.4f}, mean reciprocal rank {(1 / found).mean():.4f}")
        if first is None:
            first = hits
        else:
            apart = interval((hits - first).numpy())
            print(f"    recall@1 {apart.mean:+.4f} ({apart.low:+.4f} to {apart.high:+.4f})")


@torch.no_grad()
def time(asked: argparse.Namespace, device: str) -> None:
    """Both compiled, in a CUDA graph; without a GPU only what they say is compared."""
    texts, tokens = asked.sizes.timed_texts, asked.sizes.timed_tokens
    dense = load_encoder(asked.inputs / "model", torch.float16).to(device).eval()
    pruned = load_encoder(asked.tuned, torch.float16).to(device).eval()
    ids = torch.randint(1, dense.config.vocab_size, (texts, tokens), device=device)
    before = pooled(pruned(ids).last_hidden_state, ids)
    sparsify(pruned, asked.pruned, gpu=asked.gpu, max_tokens=texts * tokens, few_tokens=False)
    off = 1.0 - (pooled(pruned(ids).last_hidden_state, ids) * before).sum(1).min()
    print(f"vectors differ from those of dense products by at most {float(off):.1e} of the cosine")
    if device == "cuda":
        forwards = {
            f"{name} {form}": _graph(model, ids, overlaps=form == "overlapped")
            for name, model in {"dense": fuse_dense(dense), "pruned": fuse_dense(pruned)}.items()
            for form in ("compiled", "overlapped")
        }
        print(compared(times_us(forwards, 40)))


def compared(us: Mapping[str, float]) -> str:
    """Return the times of both models, each in its faster form: overlap makes some dense passes slower."""
    dense, pruned = (
        min(t for name, t in us.items() if name.startswith(kind)) for kind in ("dense", "pruned")
    )
    return f"dense {dense:.0f} us, pruned {pruned:.0f} us: {dense / pruned:.2f} times as fast"


def _graph(model: nn.Module, ids: torch.Tensor, *, overlaps: bool):
    torch._dynamo.reset()
    with torch._inductor.config.patch({"triton.enable_pdl": overlaps}):
        compiled = torch.compile(Encoder(model))
        return captured(lambda: compiled(ids))


STEPS = {"calibrate": calibrate, "distil": distil, "judge": judge, "time": time}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("step", choices=STEPS)
    parser.add_argument("--inputs", type=Path, required=True, help="folder that prepare.py wrote")
    parser.add_argument("--out", type=Path, help="calibrate: a .safetensors file; distil: a folder")
    parser.add_argument("--pruned", type=Path, help="folder that `prunecast prune` wrote")
    parser.add_argument("--tuned", type=Path, help="folder that `distil` wrote")
    parser.add_argument(
        "--models", type=Path, nargs="+", default=(), help="judge: folders, the dense one first"
    )
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--texts", type=int, default=Sizes.pairs, help="pairs in a batch, and texts alone")
    parser.add_argument("--batches", type=int, default=CALIBRATED_BATCHES, help="batches of calibrate")
    parser.add_argument("--gpu", default="h200-sxm")
    asked = parser.parse_args()
    asked.sizes = Sizes(pairs=asked.texts, others=asked.texts)
    STEPS[asked.step](asked, "cuda" if torch.cuda.is_available() else "cpu")


if __name__ == "__main__":
    main()

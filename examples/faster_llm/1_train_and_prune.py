"""Train a language model, prune it, train what is left, and keep both as Hugging Face checkpoints.

    python examples/faster_llm/1_train_and_prune.py --out FOLDER [--seconds 150] [--sparsity 0.75]

Writes FOLDER/dense and FOLDER/pruned; the second one has zeros, and a block in config.json by which
`prunecast.torch.huggingface` makes sparse layers of it. Needs a GPU for a model of a useful size.
"""

import argparse
import copy
from pathlib import Path

import torch
from language_model import Text, held_out_loss, new_model, train
from torch import nn

from prunecast.torch.huggingface import sparsify_pretrained

PATTERN = "tile-wise:128"


def pruned_copy(model: nn.Module, sparsity: float, gpu: str) -> nn.Module:
    """The model in fp16 with sparse layers; the state dictionary has the zeros."""
    sparse = copy.deepcopy(model).half().eval()
    sparsify_pretrained(sparse, PATTERN, sparsity=sparsity, gpu=gpu, max_tokens=2048)
    return sparse


def masks_of(sparse: nn.Module, dense: nn.Module) -> dict[str, torch.Tensor]:
    """Name of each pruned matrix -> where it is not zero."""
    own = dict(dense.named_parameters())
    return {
        name: values.to(own[name].device) != 0
        for name, values in sparse.state_dict().items()
        if name in own and values.dim() == 2 and (values == 0).float().mean() > 0.01
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--seconds", type=float, default=150.0, help="of training; a third more after pruning"
    )
    parser.add_argument("--sparsity", type=float, default=0.75)
    parser.add_argument("--hidden", type=int, default=2048)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--windows", type=int, default=32, help="of a training step")
    parser.add_argument("--gpu", default="h200-sxm")
    asked = parser.parse_args()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    text, model = Text(asked.context, device), new_model(asked.hidden, asked.layers, asked.context).to(device)
    million = sum(each.numel() for each in model.parameters()) / 1e6
    steps = train(model, text, asked.seconds, asked.windows)
    print(
        f"{million:.0f} M parameters, {steps} steps, {held_out_loss(model, text):.3f} nats a byte", flush=True
    )
    copy.deepcopy(model).half().save_pretrained(asked.out / "dense")
    masks = masks_of(pruned_copy(model, asked.sparsity, asked.gpu), model)
    with torch.no_grad():
        for name, mask in masks.items():
            model.get_parameter(name).mul_(mask)
    print(f"pruned to {asked.sparsity:.0%}: {held_out_loss(model, text):.3f} nats a byte", flush=True)
    steps = train(model, text, asked.seconds / 3, asked.windows, masks)
    print(f"after {steps} more steps: {held_out_loss(model, text):.3f} nats a byte", flush=True)
    sparse = model.half().eval()
    sparsify_pretrained(sparse, PATTERN, gpu=asked.gpu, max_tokens=2048)
    sparse.save_pretrained(asked.out / "pruned")


if __name__ == "__main__":
    main()

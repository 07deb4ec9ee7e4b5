"""Prune BERT, run what is left in PyTorch, and compare outputs and times.

    python examples/faster_bert/faster_bert.py [--model FOLDER] [--sparsity 0.75] [--batch 32] [--tokens 128]

Without --model it is BERT-base with random weights. Without a GPU only the outputs are compared, slowly.
"""

import argparse
import copy
from pathlib import Path

import torch
from torch import nn

from prunecast.torch import sparsify
from prunecast.validation.torch_models.models import without_mask
from prunecast.validation.torch_models.timing import captured, error, times_us


def bert(folder: Path | None, layers: int) -> nn.Module:
    """Hugging Face's BERT without its pooler; no input is padded, so attention takes no mask."""
    from transformers import BertConfig, BertModel

    if folder is not None:
        options = {"attn_implementation": without_mask(), "add_pooling_layer": False}
        return BertModel.from_pretrained(folder, dtype=torch.float16, **options)
    config = BertConfig(num_hidden_layers=layers, attn_implementation=without_mask())
    return BertModel(config, add_pooling_layer=False).half()


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--model", type=Path, help="folder of a Hugging Face checkpoint")
    parser.add_argument("--layers", type=int, default=12, help="of a BERT-base with random weights")
    parser.add_argument("--sparsity", type=float, default=0.75)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--gpu", default="h200-sxm")
    asked = parser.parse_args()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dense = bert(asked.model, asked.layers).to(device).eval()
    sparse, zeros = copy.deepcopy(dense), copy.deepcopy(dense)
    most = asked.batch * asked.tokens
    sparsify(sparse, "tile-wise:128", sparsity=asked.sparsity, gpu=asked.gpu, max_tokens=most)
    zeros.load_state_dict(sparse.state_dict())
    ids = torch.randint(0, 500, (asked.batch, asked.tokens), device=device)
    off = error(sparse(ids).last_hidden_state, zeros(ids).last_hidden_state)
    print(f"output against the dense model with the same zeros: {off:.2%}")
    if device == "cpu":
        return
    passes = {}
    for name, model in (("dense", dense), ("pruned", sparse)):
        made = torch.compile(model)
        passes[f"{name}, eager"] = lambda model=model: model(ids).last_hidden_state
        passes[f"{name}, compiled in a graph"] = captured(lambda made=made: made(ids).last_hidden_state)
    times = times_us(passes, 25)
    for name, us in times.items():
        print(f"{name:28} {us:8.0f} us")
    best = {
        kind: min(us for name, us in times.items() if name.startswith(kind)) for kind in ("dense", "pruned")
    }
    print(f"{best['dense'] / best['pruned']:.2f} times as fast")


if __name__ == "__main__":
    main()

"""Trains the language model of the study and writes its weights and loss curve."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch
from language import (
    LanguageModel,
    Text,
    batches,
    build,
    next_byte_loss,
    read_corpus,
    text_of,
    training_loss,
    validation_loss,
)
from safetensors.torch import save_file
from settings import Language
from tuning import rate_at, train

PIECES = 12
"""Rows of the loss curve."""


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for weights.safetensors, train.json")
    parser.add_argument("--steps", type=int, default=Language.train_steps)
    parser.add_argument("--batch", type=int, default=Language.train_batch)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compile", action="store_true", help="train through torch.compile")
    return parser.parse_args()


def train_and_watch(model: LanguageModel, text: Text, options: argparse.Namespace) -> list[dict[str, float]]:
    """The loss curve."""
    rates = [
        rate_at(step, options.steps, 10 * Language.warmup_steps, Language.train_rate)
        for step in range(options.steps)
    ]
    rows, start = [], time.perf_counter()

    def watch(step: int) -> None:
        if step % (options.steps // PIECES) == 0 or step == options.steps:
            seconds = round(time.perf_counter() - start, 2)
            found = {
                "train_loss": training_loss(model, text),
                "validation_loss": validation_loss(model, text),
            }
            rows.append({"step": step, "seconds": seconds, **found})
            print(rows[-1], flush=True)

    trained = torch.compile(model) if options.compile else model
    train(trained, next_byte_loss, batches(text, options.batch, options.seed), rates, watch=watch)
    return rows


def main() -> None:
    options = parse_options()
    options.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(options.seed)
    device = torch.device(options.device)
    corpus = read_corpus()
    text = text_of(corpus, device)
    model = build(Language.train_dropout, device)
    rows = train_and_watch(model, text, options)
    save_file(
        {name: tensor.half() for name, tensor in model.state_dict().items()},
        options.out / "weights.safetensors",
    )
    record = {
        "device": torch.cuda.get_device_name() if device.type == "cuda" else device.type,
        "torch_version": torch.__version__,
        "corpus_sha256": corpus.sha256,
        "corpus_bytes": corpus.size_bytes,
        "parameters": sum(p.numel() for p in model.parameters()),
        "steps": options.steps,
        "batch_windows": options.batch,
        "peak_learning_rate": Language.train_rate,
        "dropout": Language.train_dropout,
        "seed": options.seed,
        "curve": rows,
    }
    (options.out / "train.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

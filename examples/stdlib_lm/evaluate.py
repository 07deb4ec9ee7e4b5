"""Computes the stored weights' validation loss on the running interpreter's standard library."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from corpus import EVALUATION_WINDOWS, bytes_tensor, even_windows, read_corpus
from model import LanguageModel, bits, evaluation_loss_nats_per_byte
from safetensors import safe_open
from safetensors.torch import load_file

SAMPLE_BYTES = 200
SAMPLE_START = b"\0"
"""A sample starts where a file ends, so at the top of a new one."""
TEMPERATURE = 0.8


def parse_options() -> argparse.Namespace:
    """Command-line options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", type=Path, default=Path(__file__).with_name("weights.safetensors"))
    parser.add_argument("--windows", type=int, default=EVALUATION_WINDOWS, help="validation windows")
    parser.add_argument("--samples", type=int, nargs="?", const=1, default=0, help="texts to generate")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0, help="for the samples")
    return parser.parse_args()


def load_model(path: Path, device: torch.device) -> LanguageModel:
    """The model in float32 with the weights of the file, ready to evaluate."""
    model = LanguageModel()
    model.load_state_dict(load_file(path))
    return model.to(device).eval()


def read_metadata(path: Path) -> dict[str, str]:
    """What the weights file says of its training."""
    with safe_open(path, framework="numpy") as file:
        return dict(file.metadata())


def print_losses(model: LanguageModel, options: argparse.Namespace) -> None:
    """Prints the loss on this interpreter's held-out files beside the one recorded in training."""
    corpus = read_corpus()
    validation = bytes_tensor(corpus.validation, torch.device(options.device))
    windows = even_windows(validation, options.windows, model.shape.context_bytes + 1)
    loss = evaluation_loss_nats_per_byte(model, windows)
    metadata = read_metadata(options.weights)
    same = "same" if corpus.sha256 == metadata["corpus_sha256"] else "another"
    print(f"validation loss {loss:.6f} nats/byte, {bits(loss):.6f} bits/byte over {windows.numel()} bytes")
    print(f"recorded in training {metadata['validation_loss_nats_per_byte']} nats/byte, {same} corpus")


@torch.no_grad()
def sample(model: LanguageModel, generator: torch.Generator, device: torch.device) -> bytes:
    """Generates `SAMPLE_BYTES` bytes after `SAMPLE_START`."""
    text = bytes_tensor(SAMPLE_START, device).long()[None]
    for _ in range(SAMPLE_BYTES):
        logits = model(text[:, -model.shape.context_bytes :])[:, -1]
        following = torch.multinomial((logits / TEMPERATURE).softmax(-1), 1, generator=generator)
        text = torch.cat([text, following], dim=1)
    return bytes(text[0, len(SAMPLE_START) :].tolist())


def main() -> None:
    """Evaluates, then generates if asked to."""
    options = parse_options()
    device = torch.device(options.device)
    model = load_model(options.weights, device)
    print_losses(model, options)
    generator = torch.Generator(device).manual_seed(options.seed)
    for _ in range(options.samples):
        print("---")
        print(sample(model, generator, device).decode("utf-8", errors="replace"))


if __name__ == "__main__":
    main()

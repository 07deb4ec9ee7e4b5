"""Trains the byte-level language model on the running interpreter's standard library."""

from __future__ import annotations

import argparse
import csv
import json
import math
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from corpus import EVALUATION_WINDOWS, Corpus, bytes_tensor, even_windows, random_windows, read_corpus
from model import LanguageModel, bits, evaluation_loss_nats_per_byte, next_byte_loss
from numpy.typing import NDArray
from torch import Tensor, nn
from weights_file import save_weights

DROPOUT = 0.1
PEAK_LEARNING_RATE = 2e-3
WARMUP_STEPS = 200
WEIGHT_DECAY = 0.1
GRADIENT_NORM_LIMIT = 1.0


class Row(NamedTuple):
    """One line of loss.csv: losses in nats/byte on fixed windows, without dropout."""

    step: int
    train_loss: float
    validation_loss: float
    seconds: float


class Budget(NamedTuple):
    """Training ends when either the steps or the wall-clock seconds are used up."""

    steps: int
    seconds: float

    def progress(self, step: int, elapsed_seconds: float) -> float:
        """The larger of the used fractions of steps and seconds; 1 or more means the end."""
        return max(step / self.steps, elapsed_seconds / self.seconds)


class Data(NamedTuple):
    """All bytes to train on, and the fixed windows (count, context + 1) for evaluation, on one device."""

    training: Tensor
    training_windows: Tensor
    validation_windows: Tensor


def parse_options() -> argparse.Namespace:
    """Command-line options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder for the results")
    parser.add_argument("--steps", type=int, default=16000, help="at most this many updates")
    parser.add_argument("--batch", type=int, default=128, help="windows per update")
    parser.add_argument("--seconds", type=float, default=math.inf, help="at most this much wall-clock time")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--evaluate-every", type=int, default=250, help="updates between rows of loss.csv")
    parser.add_argument("--compile", action="store_true", help="train through torch.compile")
    return parser.parse_args()


def learning_rate(step: int, progress: float) -> float:
    """Linear warm-up in steps times a cosine that falls to zero at progress 1."""
    warmup = min(1.0, (step + 1) / WARMUP_STEPS)
    return PEAK_LEARNING_RATE * warmup * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))


def make_optimizer(model: nn.Module, device: torch.device) -> torch.optim.AdamW:
    """AdamW that decays the matrices and leaves the norms' scales alone."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": WEIGHT_DECAY},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, betas=(0.9, 0.95), fused=device.type == "cuda")


def make_data(corpus: Corpus, context_bytes: int, device: torch.device) -> Data:
    """Puts the corpus on the device and cuts the fixed windows."""
    training = bytes_tensor(corpus.training, device)
    validation = bytes_tensor(corpus.validation, device)
    length_bytes = context_bytes + 1
    return Data(
        training,
        even_windows(training, EVALUATION_WINDOWS, length_bytes),
        even_windows(validation, EVALUATION_WINDOWS, length_bytes),
    )


def update(model: nn.Module, optimizer: torch.optim.Optimizer, windows: Tensor, rate: float) -> None:
    """One optimizer step on the windows (batch, context + 1); bfloat16 products on CUDA."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    kind = windows.device.type
    with torch.autocast(kind, dtype=torch.bfloat16, enabled=kind == "cuda"):
        loss = next_byte_loss(model, windows)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), GRADIENT_NORM_LIMIT)
    optimizer.step()


def make_update(
    model: LanguageModel, data: Data, options: argparse.Namespace
) -> Callable[[int, float], None]:
    """A function of step and progress that performs one update on freshly drawn windows."""
    device = data.training.device
    optimizer = make_optimizer(model, device)
    generator = torch.Generator(device).manual_seed(options.seed)
    trained = cast(nn.Module, torch.compile(model)) if options.compile else model
    length_bytes = model.shape.context_bytes + 1

    def perform(step: int, progress: float) -> None:
        windows = random_windows(data.training, options.batch, length_bytes, generator)
        update(trained, optimizer, windows, learning_rate(step, progress))

    return perform


def measure(model: nn.Module, data: Data, step: int, start_seconds: float) -> Row:
    """Evaluates both splits, and prints and returns the row."""
    train_loss = evaluation_loss_nats_per_byte(model, data.training_windows)
    validation_loss = evaluation_loss_nats_per_byte(model, data.validation_windows)
    elapsed_seconds = time.perf_counter() - start_seconds
    row = Row(step, round(train_loss, 6), round(validation_loss, 6), round(elapsed_seconds, 3))
    print(f"{row} validation {bits(row.validation_loss):.4f} bits/byte", flush=True)
    return row


def train(model: LanguageModel, data: Data, budget: Budget, options: argparse.Namespace) -> list[Row]:
    """Trains until the budget is used up; the last row is that of the weights rounded to float16."""
    perform = make_update(model, data, options)
    start_seconds = time.perf_counter()
    rows, step, progress = [], 0, 0.0
    while progress < 1:
        if step % options.evaluate_every == 0:
            rows.append(measure(model, data, step, start_seconds))
        perform(step, progress)
        step += 1
        progress = budget.progress(step, time.perf_counter() - start_seconds)
    round_to_float16(model)
    return [*rows, measure(model, data, step, start_seconds)]


@torch.no_grad()
def round_to_float16(model: nn.Module) -> None:
    """Rounds the weights in place to values that float16 holds, so that saving them loses nothing."""
    for parameter in model.parameters():
        parameter.copy_(parameter.half())


def float16_arrays(model: nn.Module) -> dict[str, NDArray[np.float16]]:
    """The model's weights by name, as float16 arrays."""
    return {name: tensor.detach().half().cpu().numpy() for name, tensor in model.state_dict().items()}


def device_name(device: torch.device) -> str:
    """The accelerator's product name, or the kind of processor."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type} ({platform.machine()})"


def describe(corpus: Corpus, last: Row, options: argparse.Namespace) -> dict[str, Any]:
    """What training.json holds."""
    return {
        "python_version": platform.python_version(),
        "torch_version": torch.__version__,
        "device": device_name(torch.device(options.device)),
        "seed": options.seed,
        "batch_windows": options.batch,
        "compiled": options.compile,
        "budget_steps": options.steps,
        "budget_seconds": options.seconds if math.isfinite(options.seconds) else None,
        **describe_corpus(corpus),
        **describe_result(last),
    }


def describe_corpus(corpus: Corpus) -> dict[str, Any]:
    """The corpus's part of training.json."""
    return {
        "corpus_bytes": corpus.size_bytes,
        "corpus_sha256": corpus.sha256,
        "training_bytes": len(corpus.training),
        "training_files": corpus.training_file_count,
        "validation_bytes": len(corpus.validation),
        "validation_files": corpus.validation_file_count,
    }


def describe_result(last: Row) -> dict[str, Any]:
    """The last measurement's part of training.json."""
    return {
        "steps": last.step,
        "wall_seconds": last.seconds,
        "train_loss_nats_per_byte": last.train_loss,
        "validation_loss_nats_per_byte": last.validation_loss,
        "validation_loss_bits_per_byte": round(bits(last.validation_loss), 6),
    }


def write_rows(rows: list[Row], path: Path) -> None:
    """Writes loss.csv."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Row._fields)
        writer.writerows(rows)


def main() -> None:
    """Trains and writes loss.csv, training.json and the weights."""
    options = parse_options()
    torch.manual_seed(options.seed)
    device = torch.device(options.device)
    corpus = read_corpus()
    model = LanguageModel(dropout=DROPOUT).to(device)
    data = make_data(corpus, model.shape.context_bytes, device)
    rows = train(model, data, Budget(options.steps, options.seconds), options)
    training = describe(corpus, rows[-1], options)
    options.out.mkdir(parents=True, exist_ok=True)
    write_rows(rows, options.out / "loss.csv")
    (options.out / "training.json").write_text(json.dumps(training, indent=2) + "\n", encoding="utf-8")
    print(save_weights(float16_arrays(model), training, options.out))


if __name__ == "__main__":
    main()

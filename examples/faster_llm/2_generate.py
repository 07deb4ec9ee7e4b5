"""Let the dense and the pruned model write on, and count tokens a second.

    python examples/faster_llm/2_generate.py FOLDER [--tokens 256] [--prompt TEXT]

Both sample with the same seed. On a GPU each token is one replay of a CUDA graph of the compiled model.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from transformers import AutoModelForCausalLM, StaticCache

import prunecast.torch.huggingface  # noqa: F401  knows pruned checkpoints
from prunecast.validation.torch_models.timing import captured

PROMPT = "def read_lines(path):\n"
TEMPERATURE, ROUNDS = 0.7, 5

Step = Callable[[], torch.Tensor]


class Writer:
    """A model with a cache of a fixed size, which writes one byte after another."""

    def __init__(self, model: nn.Module, tokens: int, device: str) -> None:
        self.model, self.device, self.tokens = model, device, tokens
        self.token = torch.zeros((1, 1), dtype=torch.int64, device=device)
        self.place = torch.zeros((1, 1), dtype=torch.int64, device=device)
        self.cache = StaticCache(config=model.config, max_cache_len=tokens)
        made = torch.compile(model) if device == "cuda" else model
        self.step: Step = lambda: self._logits(made)
        self.step()
        if device == "cuda":
            self.step = captured(self.step)

    def _logits(self, model: nn.Module) -> torch.Tensor:
        for layer in self.cache.layers:
            if hasattr(layer, "cumulative_length"):
                layer.cumulative_length.copy_(self.place[0, 0])
        found: torch.Tensor = model(
            self.token, past_key_values=self.cache, cache_position=self.place[0], position_ids=self.place
        ).logits
        return found[0, -1]

    @torch.no_grad()
    def write(self, prompt: bytes, seed: int) -> tuple[bytes, float]:
        """The prompt and what follows, and how many tokens a second."""
        generator = torch.Generator(self.device).manual_seed(seed)
        given = torch.tensor(list(prompt), device=self.device)
        written = torch.zeros(self.tokens, dtype=torch.int64, device=self.device)
        written[: len(given)] = given
        begin = time.perf_counter()
        for place in range(self.tokens - 1):
            self.token.copy_(written[place : place + 1, None])
            self.place.fill_(place)
            logits = self.step()
            if place + 1 >= len(given):
                chances = torch.softmax(logits.float() / TEMPERATURE, -1)
                written[place + 1 : place + 2] = torch.multinomial(chances, 1, generator=generator)
        if self.device == "cuda":
            torch.cuda.synchronize()
        rate = (self.tokens - 1) / (time.perf_counter() - begin)
        return bytes(written.tolist()), rate


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--prompt", default=PROMPT)
    asked = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    prompt, rates = asked.prompt.encode(), {}
    for name in ("dense", "pruned"):
        dtype = torch.float16 if device == "cuda" or name == "pruned" else torch.float32
        model = AutoModelForCausalLM.from_pretrained(asked.folder / name, dtype=dtype).to(device).eval()
        with torch.no_grad():
            writer = Writer(model, asked.tokens, device)
            tries = [writer.write(prompt, seed=0) for _ in range(ROUNDS)]
        rates[name] = statistics.median(rate for _, rate in tries)
        print(f"--- {name}: {rates[name]:.0f} tokens a second")
        print(tries[0][0].decode("utf-8", "replace"), flush=True)
    print(f"--- {rates['pruned'] / rates['dense']:.2f} times as fast")


if __name__ == "__main__":
    main()

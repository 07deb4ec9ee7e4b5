"""Let the dense and the pruned model write on, and count tokens a second.

    python examples/faster_llm/2_generate.py FOLDER [--tokens 256] [--prompt TEXT]

Both sample with the same seed. On a GPU each token is one replay of a CUDA graph of the compiled model.
"""

import argparse
import statistics
import time
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM
from writer import Writer

import prunecast.torch.huggingface  # noqa: F401  knows pruned checkpoints

PROMPT = "def read_lines(path):\n"
TEMPERATURE, ROUNDS = 0.7, 5


def written(writer: Writer, prompt: torch.Tensor) -> tuple[bytes, float]:
    """The prompt and what follows, and how many tokens a second."""
    generator = torch.Generator(prompt.device).manual_seed(0)

    def choose(logits: torch.Tensor) -> torch.Tensor:
        chances = torch.softmax(logits.float() / TEMPERATURE, -1)
        return torch.multinomial(chances, 1, generator=generator)[:, 0]

    begin = time.perf_counter()
    text = bytes(writer.write(prompt, choose)[0].tolist())  # waits for the GPU
    return text, (writer.tokens - 1) / (time.perf_counter() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--prompt", default=PROMPT)
    asked = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    prompt = torch.tensor([list(asked.prompt.encode())], device=device)
    rates: dict[str, float] = {}
    for name in ("dense", "pruned"):
        dtype = torch.float16 if device == "cuda" or name == "pruned" else torch.float32
        model = AutoModelForCausalLM.from_pretrained(asked.folder / name, dtype=dtype).to(device).eval()
        with torch.no_grad():
            writer = Writer(model, asked.tokens, device)
            tries = [written(writer, prompt) for _ in range(ROUNDS)]
        rates[name] = statistics.median(rate for _, rate in tries)
        print(f"--- {name}: {rates[name]:.0f} tokens a second")
        print(tries[0][0].decode("utf-8", "replace"), flush=True)
    print(f"--- {rates['pruned'] / rates['dense']:.2f} times as fast")


if __name__ == "__main__":
    main()

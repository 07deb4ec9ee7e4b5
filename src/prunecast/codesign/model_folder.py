"""Writer of a pruned Hugging Face folder: weight shards, `config.json`, a model card, and copied small files.

Tensors are stored dense, with zeros. `config.json` gets the entry `quantization_config` with the method
`prunecast`. Without this package, transformers loads the model dense, with one warning about an unknown
method. After `import prunecast.torch.huggingface`, the layers are sparse.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prunecast.codesign.recipe import read_recipe
from prunecast.codesign.recipe_maps import pruned_modules
from prunecast.codesign.tile_maps import TILES
from prunecast.files import MIB
from prunecast.patterns.sources.checkpoint import MaskedTensors
from prunecast.patterns.sources.readers import INDEX, RECIPE, file_tensors, files_of_folder, open_tensors
from prunecast.patterns.sources.weight_set import write_weights
from prunecast.workload.graph.config import (
    CONFIG,
    METHOD,
    QUANTIZED,
    check_readable,
    read_config,
    smaller_config,
)
from prunecast.workload.layers import Removed, Source, path_of

CARD = "README.md"
MOST_COPIED = 256 * MIB
"""Largest size of a file that is copied, in bytes. A tokenizer with a vocabulary of 262,144 has 33 MB."""
MOST_TOKENS = 2048
"""Value of `max_tokens` in `quantization_config`: the largest number of tokens of a call for which the
loader packs weights."""
BINARY = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".onnx", ".onnx_data", ".gguf")
"""Endings of files with weights, which are not copied."""
_OWN = (CONFIG, CARD, RECIPE, TILES)


def model_folder(weights: Source) -> Path | None:
    """Return the Hugging Face folder that holds the weights; None for any other source."""
    path = path_of(weights)
    return path if path is not None and (path / CONFIG).is_file() else None


def written_names(source: Path) -> tuple[str, ...]:
    """Return the names of all files that `write_model` writes for a folder.

    Raises
    ------
    BadInput : the index of the folder cannot be read, or its weights are quantised
    """
    check_readable(source, rewritten=True)
    shards = [_shard_name(file) for file in files_of_folder(source)]
    index = [f"model{INDEX}"] if len(shards) > 1 else []
    return (*shards, *index, *copied_names(source), *_OWN)


def write_model(unfinished: Path, weights: Source, arrays: MaskedTensors, recipe: Mapping[str, Any]) -> str:
    """Write the files of a pruned model folder; return the name of its index, or of its only shard.

    The files are weight shards, their index (if there are several), `config.json`, the model card, and copies
    of small files. Each shard contains the tensors of one shard of the source, and is written tensor by
    tensor.

    Parameters
    ----------
    unfinished : temporary folder to write to
    weights : source folder of the tensors, or a smaller model made from it
    arrays : the pruned tensors
    recipe : content of `recipe.json`

    Raises
    ------
    BadInput : a tensor cannot be read, or `config.json` is not the configuration of a model
    """
    source = path_of(weights)
    assert source is not None
    config, names = read_config(source / CONFIG), {name: name for name in arrays}
    if isinstance(weights, Removed):
        chosen = weights.chosen()
        names = chosen.source_names(open_tensors(source))
        config = smaller_config(config, chosen.after, chosen.layers)
    shards = _shards(source, names)
    for name, tensors in shards.items():
        write_weights(unfinished / name, arrays.only(tensors), {"format": "pt"})
    main = next(iter(shards))
    if len(shards) > 1:
        main = f"model{INDEX}"
        forms = [arrays.form(name) for name in arrays]
        size = sum(form.bytes for form in forms)
        places = {tensor: name for name, tensors in shards.items() for tensor in tensors}
        index = {"metadata": {"total_size": size}, "weight_map": dict(sorted(places.items()))}
        (unfinished / main).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
    entry = method_entry(recipe)
    config = {**config, QUANTIZED: entry} if entry["layers"] else config
    (unfinished / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    for name in copied_names(source):
        (unfinished / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(source / name, unfinished / name)
    (unfinished / CARD).write_text(card(source, recipe), encoding="utf-8")
    return main


def method_entry(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry `quantization_config` of `config.json`, with pattern and sparsity of each module."""
    known = read_recipe(recipe)
    layers = {
        module: {"pattern": known.pattern_of(module), "sparsity": round(layer.sparsity or 0.0, 6)}
        for module, layer in pruned_modules(known).items()
    }
    patterns = [layer["pattern"] for layer in layers.values()] or [known.pattern]
    return {
        "quant_method": METHOD,
        "pattern": patterns[0],
        "gpu": recipe.get("gpu"),
        "max_tokens": MOST_TOKENS,
        "layers": layers,
        "few_tokens": True,
    }


def card(source: Path, recipe: Mapping[str, Any]) -> str:
    """Return the model card (Markdown): pruning settings, predicted time, then the card of the source."""
    settings, below = _card_of(source)
    rows = read_recipe(recipe).layers
    pruned = [row for row in rows if row.sparsity]
    patterns = sorted({row.pattern or str(recipe.get("pattern")) for row in pruned})
    shares = sorted(f"{row.sparsity:.0%}" for row in pruned)
    removed = [
        f"{row['part']} ({row['after']} of {row['before']} are left, chosen by {row['criterion']})"
        for row in recipe.get("removed") or ()
    ]
    classes = read_config(source / CONFIG).get("architectures") or ["AutoModel"]
    facts = {
        "Pruned from": source.resolve().name,
        "Removed": ", ".join(removed),
        "Patterns": ", ".join(patterns),
        "Layers": f"{len(pruned)}, of whose weights {' to '.join(sorted({shares[0], shares[-1]}))} are zero"
        if pruned
        else "",
        "Weights ranked by": f"{recipe.get('criterion', 'magnitude')}; accuracy was not measured",
        "Predicted time": _time_words(recipe),
        "Made by": f"`prunecast prune`, version {recipe.get('version')}; `{RECIPE}` has the rest",
    }
    table = [f"| {name} | {text} |" for name, text in facts.items() if text]
    return "\n".join(
        [
            *settings,
            f"# {source.resolve().name}, pruned",
            "",
            "| | |",
            "| --- | --- |",
            *table,
            "",
            *(_sparse_words(classes[0]) if pruned else ["The folder loads without prunecast."]),
            *(["", "## Card of the source", "", below] if below else []),
            "",
        ]
    )


def _sparse_words(model_class: str) -> list[str]:
    """Return the lines of a card that show how to load the model with sparse layers."""
    return [
        "The tensors are dense, with zeros, and load without prunecast. Layers become sparse with",
        "",
        "```python",
        "import prunecast.torch.huggingface",
        f"from transformers import {model_class}",
        "",
        f'model = {model_class}.from_pretrained(FOLDER, dtype="auto", device_map="cuda")',
        "```",
    ]


def _shards(source: Path, names: Mapping[str, str]) -> dict[str, list[str]]:
    """Return file to write -> names of its tensors.

    A tensor that the source stores in several parts goes to the file of the first part.

    Parameters
    ----------
    names : tensor to write -> its name in the files of the source
    """
    left = dict(names)
    shards = {}
    for file in files_of_folder(source):
        stored = file_tensors(file)
        parts = {name.rpartition(".")[0] for name in stored}
        own = [name for name, old in left.items() if old in stored or old.removesuffix(".weight") in parts]
        for name in own:
            del left[name]
        if own:
            shards[_shard_name(file)] = own
    return shards


def _shard_name(file: Path) -> str:
    return f"{file.stem.replace('pytorch_model', 'model')}.safetensors"


def copied_names(source: Path) -> list[str]:
    """Return the files to copy from a folder and its subfolders: tokenizer, licence, settings.

    Weights, hidden files, files above `MOST_COPIED` bytes and files that are written anew are left out.
    """
    found = []
    for path in sorted((*source.glob("*"), *source.glob("*/*"))):
        name = path.relative_to(source)
        if (
            path.name.endswith((*BINARY, INDEX))
            or str(name) in _OWN
            or any(p.startswith(".") for p in name.parts)
        ):
            continue
        if path.is_file() and path.stat().st_size <= MOST_COPIED:
            found.append(str(name))
    return found


def _card_of(source: Path) -> tuple[list[str], str]:
    """Return the YAML header of the source's card with two more tags (as lines), and the text below it."""
    file = source / CARD
    text = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
    lines = text.splitlines()
    end = next((place for place, line in enumerate(lines[1:], 1) if line.strip() == "---"), 0)
    has_settings = bool(end) and lines[0].strip() == "---"
    settings = lines[1:end] if has_settings else []
    tags = ["- prunecast", "- pruned"]
    if "tags:" in settings:
        place = settings.index("tags:") + 1
        settings = [*settings[:place], *tags, *settings[place:]]
    elif not any(line.startswith("tags:") for line in settings):
        settings = [*settings, "tags:", *tags]
    below = "\n".join(lines[end + 1 :] if has_settings else lines).strip()
    return ["---", *settings, "---", ""], below


def _time_words(recipe: Mapping[str, Any]) -> str:
    if "seconds" not in recipe:
        return ""
    dense, pruned = recipe["dense_seconds"], recipe["seconds"]
    run = recipe.get("workload") or "one pass"
    times = f"{1e3 * dense:.3g} ms dense, {1e3 * pruned:.3g} ms pruned ({dense / pruned:.2f}x)"
    return f"{times}: {recipe['gpu']}, {run}, runtime {recipe['runtime']}; predicted, not measured"

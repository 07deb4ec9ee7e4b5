"""Hugging Face folders through `prune`: all files and shards of the source; bad input writes nothing."""

import json
import shutil

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from prunecast.cli import main
from prunecast.codesign import predict, prune
from prunecast.codesign.model_folder import written_names
from prunecast.codesign.recipe import read_recipe
from prunecast.codesign.search import Targets, prune_model
from prunecast.codesign.write_pruned import check_folders
from prunecast.errors import BadInput
from tests.codesign.weights import uneven

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 128,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 256,
    "vocab_size": 160,
}
LAYER = "model.layers.0"
PATTERN = "tile-wise:64"


def tensors():
    """A Llama of one layer in bf16."""
    sizes = {f"self_attn.{name}_proj": (128, 128) for name in "qkvo"}
    sizes |= {"mlp.gate_proj": (256, 128), "mlp.up_proj": (256, 128), "mlp.down_proj": (128, 256)}
    named = {f"{LAYER}.{name}.weight": size for name, size in sizes.items()}
    named |= {"model.embed_tokens.weight": (160, 128), "lm_head.weight": (160, 128)}
    found = {
        name: uneven(*size, seed=seed, dtype=ml_dtypes.bfloat16)
        for seed, (name, size) in enumerate(named.items())
    }
    return {**found, f"{LAYER}.input_layernorm.weight": np.ones(128, np.float32)}


@pytest.fixture
def source(tmp_path):
    """A folder of two shards with tokenizer, card, templates, and files that are not copied."""
    folder = tmp_path / "llama"
    (folder / "templates").mkdir(parents=True)
    places = {}
    for number, name in enumerate(tensors()):
        places[name] = f"model-{number % 2 + 1:05}-of-00002.safetensors"
    for file in set(places.values()):
        save_file({n: a for n, a in tensors().items() if places[n] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "tokenizer.json").write_text('{"version": "1.0"}')
    (folder / "templates" / "chat.jinja").write_text("{{ messages }}")
    (folder / "README.md").write_text("---\nlicense: llama3\ntags:\n- text\n---\n# Llama\nText.\n")
    (folder / "optimizer.pt").write_text("not copied")
    (folder / ".cache").mkdir()
    (folder / ".cache" / "lock").write_text("not copied")
    return folder


def test_small_files_of_an_earlier_source_do_not_stay_beside_the_weights_of_another(source, tmp_path):
    """Files that an earlier run copied go; the user's own stay, and so does what a recipe names outside."""
    out = tmp_path / "out"
    prune(source, pattern=PATTERN, sparsity=0.5, out=out)
    (out / "notes.txt").write_text("mine")
    (tmp_path / "precious").write_text("outside")
    recipe = json.loads((out / "recipe.json").read_text())
    assert recipe["copied"] == ["templates/chat.jinja", "tokenizer.json"]
    recipe["copied"] += ["../precious", str(tmp_path / "precious"), 5]
    (out / "recipe.json").write_text(json.dumps(recipe))
    (source / "tokenizer.json").unlink()
    (source / "templates" / "chat.jinja").unlink()
    (source / "vocab.txt").write_text("a")
    prune(source, pattern=PATTERN, sparsity=0.5, out=out)
    assert not (out / "tokenizer.json").exists()
    assert not (out / "templates" / "chat.jinja").exists()
    assert (out / "vocab.txt").read_text() == "a"
    assert (out / "notes.txt").read_text() == "mine"
    assert (tmp_path / "precious").read_text() == "outside"


def test_crossovers_of_pruned_weights_are_refused_with_a_reason(source, tmp_path):
    out = tmp_path / "out"
    prune(source, pattern=PATTERN, sparsity=0.5, out=out)
    options = {"gpu": "h200-sxm", "engine": "model", "tokens": 64, "runtime": "engine", "kernels": ["stspmm"]}
    table = predict(out, crossovers=True, **options)
    assert not table.crossovers
    assert [
        "the weights are pruned already" in one.reason for one in table.skipped if one.layer == "crossovers"
    ] == [True]
    assert all(one.layer != "crossovers" for one in predict(out, **options).skipped)


def test_a_folder_gives_a_folder_with_all_its_files(source, tmp_path):
    out = tmp_path / "out"
    prune(source, pattern=PATTERN, sparsity=0.5, out=out)
    written = sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())
    kept = sorted(str(path.relative_to(source)) for path in source.rglob("*") if path.is_file())
    assert written == sorted([*(set(kept) - {"optimizer.pt", ".cache/lock"}), "recipe.json", "tiles.npz"])
    for name in ("tokenizer.json", "templates/chat.jinja"):
        assert (out / name).read_bytes() == (source / name).read_bytes()


def test_the_command_tells_a_whole_model_from_a_file_of_weights(source, tmp_path, capsys):
    alone = tmp_path / "alone.safetensors"
    save_file(tensors(), alone)
    for weights, written in ((source, "all files of the model"), (alone, "weights.safetensors")):
        out = tmp_path / f"out-{weights.stem}"
        assert main(["prune", str(weights), "-o", str(out), "--pattern", PATTERN]) == 0
        (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("Wrote "))
        assert line == f"Wrote {written} ({PATTERN}) and recipe.json in {out}."


def test_shards_have_the_tensors_of_the_source_with_zeros(source, tmp_path):
    out, before = tmp_path / "out", tensors()
    prune(source, pattern=PATTERN, sparsity=0.5, out=out)
    index = json.loads((out / "model.safetensors.index.json").read_text())
    assert (
        index["weight_map"] == json.loads((source / "model.safetensors.index.json").read_text())["weight_map"]
    )
    assert index["metadata"]["total_size"] == sum(array.nbytes for array in before.values())
    for file in sorted({*index["weight_map"].values()}):
        for name, array in load_file(out / file).items():
            assert index["weight_map"][name] == file
            assert array.dtype == before[name].dtype
            if "proj" in name:
                assert np.count_nonzero(array) == array.size // 2
                np.testing.assert_array_equal(array[array != 0], before[name][array != 0])
            else:
                np.testing.assert_array_equal(array, before[name])


def test_the_configuration_names_method_and_layers(source, tmp_path):
    out = tmp_path / "out"
    prune(source, pattern=PATTERN, sparsity=0.5, out=out)
    config = json.loads((out / "config.json").read_text())
    entry = config.pop("quantization_config")
    assert config == CONFIG
    assert (entry["quant_method"], entry["pattern"], entry["gpu"]) == ("prunecast", PATTERN, None)
    assert entry["layers"] == {
        layer.module: {"pattern": PATTERN, "sparsity": 0.5} for layer in read_recipe(out).layers
    }
    assert "lm_head" not in entry["layers"]


def test_the_card_has_the_settings_of_the_source_and_how_it_was_made(source, tmp_path):
    out = tmp_path / "out"
    prune(source, pattern=PATTERN, sparsity=0.5, out=out)
    card = (out / "README.md").read_text()
    assert card.startswith(
        "---\nlicense: llama3\ntags:\n- prunecast\n- pruned\n- text\n---\n\n# llama, pruned\n"
    )
    assert "| Patterns | tile-wise:64 |" in card
    assert "| Layers | 7, of whose weights 50% are zero |" in card
    assert card.endswith("## Card of the source\n\n# Llama\nText.\n")


def test_a_search_writes_the_same_folder_with_tiles_and_times(source, tmp_path):
    out = tmp_path / "out"
    targets = Targets(sparsity=0.5)
    prune_model(source, targets, gpu="h200-sxm", engine="model", out=out, families=["atp"])
    entry = json.loads((out / "config.json").read_text())["quantization_config"]
    assert entry["gpu"] == "h200-sxm"
    assert entry["layers"].keys() == read_recipe(out).tiles.keys()
    assert "ms pruned" in (out / "README.md").read_text()
    assert json.loads((out / "recipe.json").read_text())["weights"] == "model.safetensors.index.json"


@pytest.mark.parametrize("gpu", ["b9000", 7, ["h200-sxm"]])
def test_a_stated_gpu_that_is_not_known_is_one_line_and_nothing_is_written(source, tmp_path, gpu):
    out, again = tmp_path / "out", tmp_path / "again"
    prune(source, pattern=PATTERN, sparsity=0.5, out=out)
    config = json.loads((out / "config.json").read_text())
    config["quantization_config"]["gpu"] = gpu
    (out / "config.json").write_text(json.dumps(config))
    with pytest.raises(BadInput, match=r"gpu in its quantization_config: [^\n]+$"):
        predict(out, gpu="h200-sxm")
    with pytest.raises(BadInput, match="gpu in its quantization_config"):
        prune(out, pattern=PATTERN, sparsity=0.75, out=again)
    assert not again.exists()


def test_one_file_stays_one_file(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    save_file(tensors(), source / "model.safetensors")
    save_file({"other": np.ones((64, 64), np.float32)}, source / "consolidated.safetensors")
    (source / "config.json").write_text(json.dumps(CONFIG))
    prune(source, pattern=PATTERN, out=tmp_path / "out")
    files = {path.name for path in (tmp_path / "out").iterdir()}
    assert files == {"model.safetensors", "config.json", "README.md", "recipe.json", "tiles.npz"}


def entry(method, **others):
    return json.dumps({**CONFIG, "quantization_config": {"quant_method": method, **others}})


DAMAGE = {
    "a shard is missing": (
        lambda folder: (folder / "model-00002-of-00002.safetensors").unlink(),
        "model-00002-of-00002.safetensors: no such file",
    ),
    "an index that lies": (
        lambda folder: save_file({"x": np.ones((64, 64))}, folder / "model-00001-of-00002.safetensors"),
        "the index says that it has",
    ),
    "GPTQ": (
        lambda folder: (folder / "config.json").write_text(entry("gptq", bits=4)),
        r"its weights are quantised \(gptq, 4 bits\)",
    ),
    "AWQ": (
        lambda folder: (folder / "config.json").write_text(entry("awq", w_bit=4)),
        r"its weights are quantised \(awq, 4 bits\)",
    ),
    "bitsandbytes": (
        lambda folder: (folder / "config.json").write_text(
            json.dumps({**CONFIG, "quantization_config": {"load_in_4bit": True}})
        ),
        r"its weights are quantised \(bitsandbytes\)",
    ),
    "fp8": (
        lambda folder: (folder / "config.json").write_text(entry("fp8")),
        r"its weights are quantised \(fp8\): wanted the 16-bit checkpoint",
    ),
    "an entry that is none": (
        lambda folder: (folder / "config.json").write_text(json.dumps({**CONFIG, "quantization_config": 4})),
        "quantization_config must be a JSON object",
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_or_quantised_folder_is_refused_and_nothing_written(source, tmp_path, damage, capsys):
    harm, complaint = DAMAGE[damage]
    harm(source)
    with pytest.raises(BadInput, match=complaint):
        prune(source, pattern=PATTERN, out=tmp_path / "out")
    assert main(["prune", str(source), "-o", str(tmp_path / "out")]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["llama"]


def test_the_source_is_no_output(source):
    before = {path: path.read_bytes() for path in source.rglob("*") if path.is_file()}
    with pytest.raises(BadInput, match="would overwrite"):
        prune(source, pattern=PATTERN, out=source)
    assert {path: path.read_bytes() for path in source.rglob("*") if path.is_file()} == before


def test_a_folder_with_other_weights_is_no_output(source, tmp_path):
    out = tmp_path / "out"
    prune(source, pattern=PATTERN, out=out)
    (source / "model.safetensors.index.json").unlink()
    for shard in source.glob("*.safetensors"):
        shard.unlink()
    save_file(tensors(), source / "model.safetensors")
    with pytest.raises(BadInput, match="out holds other weights, model-00001-of-00002"):
        prune(source, pattern=PATTERN, out=out)


def test_an_adapter_is_refused(tmp_path):
    save_file(
        {f"base_model.model.{LAYER}.self_attn.q_proj.lora_A.weight": np.ones((8, 128), np.float32)},
        tmp_path / "adapter_model.safetensors",
    )
    shutil.copytree(tmp_path, tmp_path / "folder", ignore=shutil.ignore_patterns("folder"))
    for weights in (tmp_path / "adapter_model.safetensors", tmp_path / "folder"):
        with pytest.raises(BadInput, match="has a LoRA adapter"):
            prune(weights, pattern=PATTERN, out=tmp_path / "out")


def test_names_that_are_checked_are_those_that_are_written(source, tmp_path):
    """An index is written, and may be replaced, only with several shards."""
    single = tmp_path / "single"
    single.mkdir()
    save_file(tensors(), single / "model.safetensors")
    (single / "config.json").write_text(json.dumps(CONFIG))
    for folder, has_index in ((source, True), (single, False)):
        names = written_names(folder)
        assert ("model.safetensors.index.json" in names) == has_index
        out = tmp_path / f"out-{folder.name}"
        prune(folder, pattern=PATTERN, out=out)
        written = {str(file.relative_to(out)) for file in out.rglob("*") if file.is_file()}
        assert written <= {*names}
        assert {name for name in names if "safetensors" in name} == {n for n in written if "safetensors" in n}


def test_a_model_without_weights_is_not_written_over_weights(tmp_path):
    """Its folder gets a recipe alone, which would be read with the weights that are there."""
    for name, has_weights in (("new", False), ("empty", False), ("other", False), ("full", True)):
        folder = tmp_path / name
        if name != "new":
            folder.mkdir()
        if name == "other":
            (folder / "recipe.json").write_text("{}")
        if has_weights:
            (folder / "weights.safetensors").write_bytes(b"dear")
            with pytest.raises(BadInput, match="out holds weights, but bert-small has none"):
                check_folders([folder], "bert-small")
        else:
            check_folders([folder], "bert-small")
        check_folders([folder], {"w": np.ones((2, 2))})

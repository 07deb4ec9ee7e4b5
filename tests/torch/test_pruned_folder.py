"""Folders that `prune` wrote, loaded by transformers: dense and sparse give the same, on a CPU."""

import json

import pytest

from prunecast.codesign import prune
from prunecast.codesign.search import Targets, prune_model
from prunecast.errors import BadInput

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from prunecast.torch.huggingface import load_pretrained  # noqa: E402
from prunecast.torch.sparse_linear import SparseLinear  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

WIDE = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
TEXT = {**WIDE, "vocab_size": 96, "num_key_value_heads": 2, "max_position_embeddings": 64}
SPEECH = {
    **dict.fromkeys(("encoder_layers", "decoder_layers"), 1),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 128),
    **dict.fromkeys(("max_source_positions", "max_target_positions"), 32),
    **{"vocab_size": 96, "d_model": 64, "num_mel_bins": 16, "decoder_start_token_id": 1},
    **{"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
}
IDS = torch.arange(18).reshape(2, 9)
MADE = {
    "Llama": ("ForCausalLM", TEXT, {"input_ids": IDS}, 14),
    "Qwen2": ("ForCausalLM", {**TEXT, "tie_word_embeddings": True}, {"input_ids": IDS}, 14),
    # Its experts are one tensor in transformers, which is no `SparseLinear`
    "Mixtral": ("ForCausalLM", {**TEXT, "num_local_experts": 4}, {"input_ids": IDS}, 8),
    "Bert": ("ForMaskedLM", {**WIDE, "vocab_size": 96}, {"input_ids": IDS}, 13),
    # transformers calls its layers otherwise than its checkpoints do
    "ViT": (
        "ForImageClassification",
        {**WIDE, "image_size": 32, "patch_size": 8, "num_labels": 8},
        {"pixel_values": torch.linspace(-1, 1, 2 * 3 * 32 * 32).reshape(2, 3, 32, 32).half()},
        12,
    ),
    "Whisper": (
        "ForConditionalGeneration",
        SPEECH,
        {
            "input_features": torch.linspace(-1, 1, 2 * 16 * 64).reshape(2, 16, 64).half(),
            "decoder_input_ids": IDS,
        },
        16,
    ),
    # It keeps `wo` in fp32, which is sparse too
    "T5": (
        "ForConditionalGeneration",
        {"vocab_size": 96, "d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 1, "num_heads": 4},
        {"input_ids": IDS, "decoder_input_ids": IDS},
        16,
    ),
}


def saved(name, folder):
    """Write a small model with random weights in several shards; return what calls it."""
    torch.manual_seed(0)
    ending, sizes, call, sparse = MADE[name]
    config = getattr(transformers, f"{name}Config")(**sizes)
    model = getattr(transformers, name + ending)(config)
    model.half().save_pretrained(folder, max_shard_size="60KB")
    assert len(list(folder.glob("*.safetensors"))) > 1
    return call, sparse


def sparse_layers(model):
    return sum(isinstance(module, SparseLinear) for module in model.modules())


def logits(model, call):
    with torch.no_grad():
        return model.eval()(**call).logits


@pytest.mark.parametrize("name", MADE)
def test_dense_and_sparse_are_equal(name, tmp_path):
    call, sparse_count = saved(name, tmp_path / "source")
    prune(tmp_path / "source", pattern="tile-wise:16", sparsity=0.5, out=tmp_path / "out")
    dense = load_pretrained(tmp_path / "out")
    sparse = load_pretrained(tmp_path / "out", gpu="h200-sxm")
    assert (sparse_layers(dense), sparse_layers(sparse)) == (0, sparse_count)
    assert torch.allclose(logits(sparse, call), logits(dense, call), rtol=2**-7, atol=1e-2)


def searched(tmp_path, families, sparsity=0.4):
    saved("Llama", tmp_path / "source")
    targets = Targets(sparsity=sparsity)
    options = {"gpu": "h200-sxm", "engine": "model", "families": families}
    prune_model(tmp_path / "source", targets, out=tmp_path / "out", **options)
    return tmp_path / "out"


def test_a_searched_folder_is_sparse_as_it_was_planned(tmp_path):
    out = searched(tmp_path, ["atp"])
    loaded = transformers.AutoModelForCausalLM.from_pretrained(out, dtype="auto")
    entry = json.loads((out / "config.json").read_text())["quantization_config"]
    assert sparse_layers(loaded) == len(entry["layers"]) > 0


def generator(folder):
    """Write a tokenizer of words into the folder, and return a pipeline that loads all from there."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(96)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, eos_token="w2", pad_token="w2")
    tokenizer.save_pretrained(folder)


def test_a_pipeline_generates_the_same_text(tmp_path):
    out = tmp_path / "out"
    saved("Llama", tmp_path / "source")
    generator(tmp_path / "source")
    prune(tmp_path / "source", pattern="tile-wise:16", sparsity=0.5, out=out)
    texts = []
    for gpu in (None, "h200-sxm"):
        config = json.loads((out / "config.json").read_text())
        config["quantization_config"]["gpu"] = gpu
        (out / "config.json").write_text(json.dumps(config))
        write = transformers.pipeline("text-generation", model=str(out), dtype="auto", device="cpu")
        assert sparse_layers(write.model) == (0 if gpu is None else 14)
        (found,) = write("w5 w7 w11", max_new_tokens=6, do_sample=False)
        texts.append(found["generated_text"])
    assert texts[0] == texts[1]
    assert len(texts[0].split()) > 3


def edited(out, **changes):
    config = json.loads((out / "config.json").read_text())
    config["quantization_config"] |= changes
    (out / "config.json").write_text(json.dumps(config))
    return out


def test_a_recipe_of_another_model_is_refused(tmp_path):
    saved("Bert", tmp_path / "source")
    prune(tmp_path / "source", pattern="tile-wise:16", sparsity=0.5, out=tmp_path / "out")
    (tmp_path / "out" / "recipe.json").unlink()
    wrong = {"model.layers.0.mlp.up_proj": {"pattern": "tile-wise:16", "sparsity": 0.5}}
    with pytest.raises(BadInput, match=r"a recipe of another model: it prunes 'model.layers.0.mlp.up_proj'"):
        load_pretrained(edited(tmp_path / "out", gpu="h200-sxm", layers=wrong))


def test_an_unknown_gpu_of_the_folder_is_named(tmp_path):
    saved("Bert", tmp_path / "source")
    prune(tmp_path / "source", pattern="tile-wise:16", sparsity=0.5, out=tmp_path / "out")
    with pytest.raises(BadInput, match=r"gpu in its quantization_config: .*b9000"):
        load_pretrained(edited(tmp_path / "out", gpu="b9000"))


def test_a_gpu_without_kernels_leaves_the_model_dense(tmp_path, caplog):
    saved("Bert", tmp_path / "source")
    prune(tmp_path / "source", pattern="tile-wise:16", sparsity=0.5, out=tmp_path / "out")
    transformers.utils.logging.enable_propagation()
    model = load_pretrained(edited(tmp_path / "out", gpu="gtx-1080-ti"))
    assert sparse_layers(model) == 0
    assert "the model stays dense: no sparse kernel runs on gtx-1080-ti" in caplog.text

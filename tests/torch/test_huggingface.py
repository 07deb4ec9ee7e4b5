"""Hugging Face models with random weights: pruned, saved, loaded with and without this package, on a CPU."""

import json
import os
import subprocess
import sys

import pytest

from prunecast.errors import BadInput

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from prunecast.torch.huggingface import (  # noqa: E402
    PrunecastConfig,
    load_pretrained,
    sparsify_pretrained,
)
from prunecast.torch.sparse_linear import SparseLinear  # noqa: E402

# Inductor's own
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

OPTIONS = {"gpu": "h200-sxm", "max_tokens": 256, "quiet": True}
SIZES = {"vocab_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}


def llama():
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=64, intermediate_size=128, num_key_value_heads=2, max_position_embeddings=64, **SIZES
    )
    return transformers.LlamaForCausalLM(config).half().eval()


def bert():
    torch.manual_seed(0)
    config = transformers.BertConfig(hidden_size=64, intermediate_size=128, **SIZES)
    return transformers.BertModel(config).bfloat16().eval()


def gpt2():
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_embd=64, n_layer=1, n_head=4, vocab_size=96, n_positions=64, bos_token_id=1, eos_token_id=1
    )
    return transformers.GPT2LMHeadModel(config).half().eval()


def outputs(model, ids):
    with torch.no_grad():
        return model(ids)[0]


IDS = torch.arange(18).reshape(2, 9)


@pytest.mark.parametrize(("make", "launches"), [(llama, 8), (bert, 8), (gpt2, 4)])
def test_a_model_computes_what_its_dense_twin_does(make, launches):
    sparse, plain = make(), make()
    ignore = ["lm_head", "pooler.dense"]
    done = sparsify_pretrained(sparse, "tile-wise:16", sparsity=0.5, ignore=ignore, **OPTIONS)
    assert done.launches == launches
    plain.load_state_dict(sparse.state_dict())
    assert torch.allclose(outputs(sparse, IDS), outputs(plain, IDS), rtol=2**-6, atol=2e-2)


def test_it_is_saved_as_dense_tensors_and_loaded_sparse(tmp_path):
    sparse = llama()
    sparsify_pretrained(sparse, "tile-wise:16", sparsity=0.5, ignore=["lm_head"], **OPTIONS)
    sparse.save_pretrained(tmp_path)
    written = json.loads((tmp_path / "config.json").read_text())
    assert written["quantization_config"]["quant_method"] == "prunecast"
    assert "sparsity_config" not in written
    for load in (transformers.AutoModelForCausalLM.from_pretrained, load_pretrained):
        loaded = load(tmp_path, dtype="auto")
        assert isinstance(loaded.model.layers[1].mlp.down_proj, SparseLinear)
        assert isinstance(loaded.lm_head, torch.nn.Linear)
        # Rotary frequencies are fp32 in what is loaded, fp16 after half()
        assert torch.allclose(outputs(loaded, IDS), outputs(sparse, IDS), rtol=2e-3, atol=2e-3)


def test_the_head_is_pruned_only_by_name():
    sparse, named = llama(), llama()
    done = sparsify_pretrained(sparse, "tile-wise:16", sparsity=0.5, **OPTIONS)
    assert "lm_head: makes the logits; name it in target to prune it" in done.left
    assert isinstance(sparse.lm_head, torch.nn.Linear)
    options = {**OPTIONS, "target": ["lm_head"]}
    assert sparsify_pretrained(named, "tile-wise:16", sparsity=0.5, **options).layers == ("lm_head",)


PLAIN = """
import sys, torch
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype="auto").eval()
assert type(model.model.layers[0].mlp.down_proj) is torch.nn.Linear
assert "prunecast" not in sys.modules
with torch.no_grad():
    torch.save(model(torch.arange(18).reshape(2, 9))[0], sys.argv[2])
"""


@pytest.mark.slow
def test_transformers_alone_loads_it_dense(tmp_path):
    sparse = llama()
    sparsify_pretrained(sparse, "tile-wise:16", sparsity=0.5, ignore=["lm_head"], **OPTIONS)
    sparse.save_pretrained(tmp_path / "model")
    out = tmp_path / "logits.pt"
    # From the repository's root, transformers would take its link `kernels` for the package of that name
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", PLAIN, tmp_path / "model", out]
    subprocess.run(command, check=True, cwd=tmp_path, env=alone, timeout=1800)
    assert torch.allclose(torch.load(out), outputs(sparse, IDS), rtol=2e-3, atol=2e-3)


def test_generated_text_is_the_same():
    sparse, plain = llama(), llama()
    sparsify_pretrained(sparse, "tile-wise:16", sparsity=0.5, ignore=["lm_head"], **OPTIONS)
    plain.load_state_dict(sparse.state_dict())
    options = {
        "max_new_tokens": 4,
        "do_sample": False,
        "attention_mask": torch.ones_like(IDS),
        "pad_token_id": 0,
    }
    assert torch.equal(sparse.generate(IDS, **options), plain.generate(IDS, **options))


@pytest.mark.slow
def test_a_model_compiles_whole():
    sparse = llama()
    sparsify_pretrained(sparse, "tile-wise:16", sparsity=0.5, ignore=["lm_head"], **OPTIONS)
    torch._dynamo.reset()
    compiled = torch.compile(sparse, fullgraph=True)
    with torch.no_grad():
        found = compiled(IDS, use_cache=False)[0]
    assert torch.allclose(found, outputs(sparse, IDS), rtol=2e-3, atol=5e-3)


def test_a_dense_checkpoint_with_the_block_is_refused(tmp_path):
    plain = llama()
    plain.config.quantization_config = PrunecastConfig(gpu="h200-sxm").to_dict()
    plain.save_pretrained(tmp_path)
    with pytest.raises(BadInput, match="no layer has enough zeros"):
        load_pretrained(tmp_path)


def test_a_dense_checkpoint_is_not_pruned_while_it_is_loaded(tmp_path):
    """Transformers would accept the configuration of a quantizer that makes its tensors itself."""
    llama().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="pre-quantized"):
        transformers.AutoModelForCausalLM.from_pretrained(
            tmp_path, quantization_config=PrunecastConfig(gpu="h200-sxm")
        )


def test_a_checkpoint_whose_zeros_do_not_follow_its_block_is_refused(tmp_path):
    sparse, plain = llama(), llama()
    sparsify_pretrained(sparse, "tile-wise:16", sparsity=0.5, ignore=["lm_head"], **OPTIONS)
    plain.config.quantization_config = sparse.config.quantization_config.to_dict()
    plain.save_pretrained(tmp_path)
    with pytest.raises(BadInput, match=r"the recipe says 50\.0% zeros"):
        load_pretrained(tmp_path)


def test_an_unknown_entry_of_the_block_is_refused():
    with pytest.raises(BadInput, match="unknown entry 'speed'"):
        PrunecastConfig(speed=3)

"""Architectures of transformers with random weights: pruned, saved, loaded, exported, compiled, generating.

Tiny models on a CPU. Their weights are drawn so that every layer changes the result.
"""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from prunecast.torch import sparsify  # noqa: E402
from prunecast.torch.experts import ExpertMatrix  # noqa: E402
from prunecast.torch.find import is_transposed  # noqa: E402
from prunecast.torch.huggingface import load_pretrained, sparsify_pretrained  # noqa: E402
from prunecast.torch.packed import PackedProduct  # noqa: E402
from prunecast.torch.sparse_linear import SparseLinear  # noqa: E402
from prunecast.workload.graph.families import families  # noqa: E402
from tests.torch.tiny_models import CLASSES, FORMS, KEYS, WIDE, built  # noqa: E402

# Inductor's own, and transformers' about tiny sizes
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

PATTERN = "tile-wise:16"
OPTIONS = {"gpu": "h200-sxm", "max_tokens": 1024, "few_tokens": False, "quiet": True}
LAYERS = {"num_hidden_layers": 1, "num_attention_heads": 4, "hidden_size": 64, "intermediate_size": 128}
WORDS = {"vocab_size": 96}
ENDS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
TEXT = {**WIDE, **ENDS, "num_hidden_layers": 1}
PIXELS = {**LAYERS, "image_size": 32, "patch_size": 16}
BOTH = {
    **WORDS,
    "d_model": 64,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 3,
}
SAM = {
    "vision_config": {
        "hidden_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "image_size": 64,
        "patch_size": 16,
        "mlp_dim": 128,
        "output_channels": 32,
        "num_pos_feats": 16,
        "global_attn_indexes": [0],
    },
    "prompt_encoder_config": {
        "hidden_size": 32,
        "image_size": 64,
        "patch_size": 16,
        "mask_input_channels": 4,
    },
    "mask_decoder_config": {
        "hidden_size": 32,
        "mlp_dim": 64,
        "num_attention_heads": 4,
        "iou_head_hidden_dim": 32,
    },
}
DISTIL = {**WORDS, "dim": 64, "hidden_dim": 128, "n_layers": 1, "n_heads": 4, "max_position_embeddings": 64}
SPEECH = {
    **LAYERS,
    "vocab_size": 32,
    "conv_dim": (32, 32),
    "conv_kernel": (5, 3),
    "conv_stride": (4, 2),
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
    "num_feat_extract_layers": 2,
}
SWIN = {"image_size": 32, "patch_size": 4, "embed_dim": 32, "depths": [1, 1], "num_heads": [2, 4]}
CONVNEXT = {
    "num_stages": 2,
    "hidden_sizes": [32, 64],
    "depths": [1, 1],
    "image_size": 32,
    "layer_scale_init_value": 1.0,
}


def of(form, end="", **sizes):
    """Return the entry of a family's tiny model with one layer, by its name in `FORMS`."""
    family, own = FORMS[form]
    kind, its_end, of_family = CLASSES[family]
    one = {families()[family].names("layers")[0]: 1}
    return kind, end or its_end, {**of_family, **ENDS, **own, **one, **sizes}


WRITERS = {
    "llama": of("llama"),
    "qwen2": of("qwen2"),
    "qwen3": of("qwen3"),
    "mistral": of("mistral"),
    "gemma2": of("gemma2"),
    "gemma3": of("gemma3_text"),
    "phi": ("Phi", "ForCausalLM", TEXT),
    "phi3": of("phi3"),
    "olmo2": ("Olmo2", "ForCausalLM", {**KEYS, **TEXT}),
    "gpt2": of("gpt2"),
    "gpt_neox": of("gpt_neox"),
    "opt": of("opt"),
    "bloom": ("Bloom", "ForCausalLM", {**WORDS, "hidden_size": 64, "n_layer": 1, "n_head": 4}),
    "falcon": of("falcon"),
    "falcon_40b": of("falcon as 40B"),
    "falcon_rw": of("falcon as RW"),
    "mixtral": of("mixtral"),
    "qwen3_moe": of("qwen3_moe", moe_intermediate_size=64),
    "gpt_oss": of("gpt_oss"),
    "t5": of("T5EncoderModel", "ForConditionalGeneration", decoder_start_token_id=0),
    "flan_t5": of("t5 with gate", "ForConditionalGeneration", decoder_start_token_id=0),
    "bart": ("Bart", "ForConditionalGeneration", {**BOTH, "forced_eos_token_id": 2}),
    "whisper": (
        "Whisper",
        "ForConditionalGeneration",
        {**BOTH, "num_mel_bins": 16, "max_source_positions": 20, "max_target_positions": 32},
    ),
}
READERS = {
    "bert": of("bert"),
    "roberta": of("roberta"),
    "xlm_roberta": ("XLMRoberta", "Model", TEXT),
    "distilbert": ("DistilBert", "Model", DISTIL),
    "deberta_v2": (
        "DebertaV2",
        "Model",
        {**TEXT, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
    ),
    "albert": ("Albert", "Model", {**TEXT, "num_hidden_layers": 2, "embedding_size": 32}),
    "electra": ("Electra", "Model", {**TEXT, "embedding_size": 32}),
    "modernbert": ("ModernBert", "Model", {**TEXT, "cls_token_id": 1, "sep_token_id": 2}),
    "vit": of("vit", **PIXELS),
    "deit": ("DeiT", "Model", PIXELS),
    "dinov2": ("Dinov2", "Model", {**PIXELS, "mlp_ratio": 2}),
    "clip": ("CLIP", "Model", {"text_config": TEXT, "vision_config": PIXELS, "projection_dim": 32}),
    "siglip": ("Siglip", "Model", {"text_config": TEXT, "vision_config": PIXELS}),
    "swin": ("Swin", "Model", {**SWIN, "window_size": 4}),
    "convnext": ("ConvNext", "Model", CONVNEXT),
    "sam": ("Sam", "Model", SAM),
    "wav2vec2": ("Wav2Vec2", "Model", SPEECH),
}
ALL = WRITERS | READERS
UNFUSED = {"phi3", "modernbert", "mixtral", "qwen3_moe", "gpt_oss", "clip"}
"""Gate and up in one matrix, experts, and an activation that no kernel has."""
CROSSED = {"bart": 11, "whisper": 11, "t5": 11, "flan_t5": 11}
"""Launches of models with attention from one sequence to another: queries apart, keys and values as one."""

SAME_ARCHITECTURE = {"falcon_40b", "falcon_rw"}
"""Other configurations of an architecture that `ALL` has already."""


def test_the_page_says_how_many_architectures_are_tested():
    page = Path(__file__).parents[2] / "docs" / "howto" / "faster_pytorch_model.md"
    text = page.read_text(encoding="utf-8")
    assert f"Tests convert {len(ALL.keys() - SAME_ARCHITECTURE)} architectures: " in text


IDS = torch.arange(3, 21).reshape(2, 9)


def made(name):
    model = built(*ALL[name])
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_().mul_(parameter.shape[-1] ** -0.5)
    return model.half().eval()


def given(name):
    """Keyword arguments of a forward."""
    own = torch.Generator().manual_seed(1)

    def drawn(*shape):
        return torch.randn(shape, generator=own).half()

    picture = {"pixel_values": drawn(2, 3, 32, 32)}
    if name in ("vit", "deit", "dinov2", "swin", "convnext"):
        return picture
    if name in ("clip", "siglip"):
        return {"input_ids": IDS, **picture}
    if name == "sam":
        return {"pixel_values": drawn(2, 3, 64, 64), "input_points": 30 * drawn(2, 1, 2, 2).float().abs()}
    if name == "wav2vec2":
        return {"input_values": drawn(2, 400)}
    if name == "whisper":
        return {"input_features": drawn(2, 16, 40), "decoder_input_ids": IDS}
    both = {"decoder_input_ids": IDS[:, :5]} if name in ("t5", "flan_t5", "bart") else {}
    return {"input_ids": IDS, **both}


def result(model, inputs):
    with torch.no_grad():
        values = model(**inputs, return_dict=True).to_tuple()
    return next(value for value in values if isinstance(value, torch.Tensor)).float()


def difference(y, wanted):
    return float((y - wanted).norm() / wanted.norm())


def pruned(name):
    """A sparse model, the dense one with its zeros, and what was done."""
    sparse, plain = made(name), made(name)
    done = sparsify_pretrained(sparse, PATTERN, sparsity=0.5, **OPTIONS)
    plain.load_state_dict(sparse.state_dict())
    return sparse, plain, done


@pytest.mark.parametrize("name", ALL)
def test_any_architecture_computes_what_its_dense_twin_does(name, tmp_path):
    sparse, plain, done = pruned(name)
    linear = {
        each: module
        for each, module in plain.named_modules()
        if isinstance(module, torch.nn.Linear) or is_transposed(module)
    }
    reasons = [line.partition(": ")[0] for line in done.left]
    assert set(linear) <= {*done.layers, *reasons}, "every layer is converted or named"
    stacks = {each for each in done.layers if ".experts." in each}
    assert bool(stacks) == (name in ("mixtral", "qwen3_moe")), "experts are converted, those with biases not"
    for each in done.layers:
        kind = ExpertMatrix if each in stacks else SparseLinear
        weight = plain.get_parameter(each) if each in stacks else linear[each].weight
        assert isinstance(sparse.get_submodule(each), kind)
        assert float((weight == 0).float().mean()) > 0.4
    products = {id(each): each for each in sparse.modules() if isinstance(each, PackedProduct)}.values()
    assert any(each.epilogue.features_first for each in products) == (name not in UNFUSED)
    assert done.launches == CROSSED.get(name, done.launches)
    inputs = given(name)
    y, wanted = result(sparse, inputs), result(plain, inputs)
    # A rounding of fp16 is 2^-11 of a value; results pass a few layers
    assert difference(y, wanted) < 3e-3
    other = made(name)
    assert difference(result(other, inputs), wanted) > 0.05, "zeros change the result"
    sparse.save_pretrained(tmp_path)
    loaded = load_pretrained(tmp_path)
    assert isinstance(loaded.get_submodule(done.layers[-1]), ExpertMatrix if stacks else SparseLinear)
    # Rotary frequencies and T5's last layers are fp32 in what is loaded, fp16 after half()
    assert difference(result(loaded, inputs), y) < 3e-3


@pytest.mark.parametrize("name", WRITERS)
def test_any_architecture_generates_what_its_dense_twin_does(name):
    sparse, plain, _ = pruned(name)
    inputs = {"input_features": given(name)["input_features"]} if name == "whisper" else {"inputs": IDS}
    options = {"max_new_tokens": 3, "min_new_tokens": 3, "do_sample": False, "disable_compile": True}
    if name != "whisper":
        options["attention_mask"] = torch.ones_like(IDS)
    wanted = plain.generate(**inputs, **options)
    assert torch.equal(sparse.generate(**inputs, **options), wanted)
    if (
        name != "falcon_rw"
    ):  # transformers adds ALiBi's biases of the prompt to scores of the whole static cache
        assert torch.equal(sparse.generate(**inputs, **options, cache_implementation="static"), wanted)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama", "bert", "t5", "vit", "whisper", "mixtral", "qwen3_moe"])
def test_an_architecture_compiles_and_exports_whole(name):
    sparse, plain, _ = pruned(name)
    inputs, wanted = given(name), result(plain, given(name))
    options = {"use_cache": False} if name in WRITERS else {}
    torch._dynamo.reset()
    with torch.no_grad():
        found = torch.compile(sparse, fullgraph=True, backend="aot_eager")(**inputs, **options)[0]
        exported = torch.export.export(sparse, (), {**inputs, **options}, strict=False)
        again = exported.module()(**inputs, **options)[0]
    for y in (found, again):
        assert difference(y.float(), wanted) < 3e-3


def test_layers_that_cannot_be_converted_are_named():
    class Other(torch.nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    class Same(torch.nn.Linear):
        def forward(self, x):
            return x @ self.weight.T + self.bias

    class Packed(torch.nn.Linear):
        def __init__(self, *sizes):
            super().__init__(*sizes)
            del self.weight
            self.register_buffer("weight_packed", torch.zeros(64, 32, dtype=torch.uint8))

    model = torch.nn.ModuleDict(
        {
            "other": Other(64, 64),
            "packed": Packed(64, 64),
            "same": Same(64, 64),
            "zero": torch.nn.Linear(64, 64),
            "attention": torch.nn.MultiheadAttention(64, 4),
            "mixed": torch.nn.Linear(64, 64).bfloat16(),
        }
    )
    torch.nn.init.zeros_(model["zero"].weight)
    done = sparsify(model, PATTERN, sparsity=0.5, **OPTIONS)
    assert done.layers == ("same", "mixed")
    assert dict(line.split(": ") for line in done.left) == {
        "other": "Other computes something else than nn.Linear",
        "packed": "Packed computes something else than nn.Linear",
        "zero": "all its weights are zero",
        "attention.in_proj_weight": "MultiheadAttention reads its weights itself",
        "attention.out_proj": "NonDynamicallyQuantizableLinear computes something else than nn.Linear",
    }
    for name, dtype in (("same", torch.float32), ("mixed", torch.bfloat16)):
        x = torch.randn(4, 64).to(dtype)
        wanted = torch.nn.functional.linear(x, model[name].weight, model[name].bias)
        assert torch.allclose(model[name](x), wanted, rtol=1e-2, atol=1e-2)

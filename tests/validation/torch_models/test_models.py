"""Models that are measured, and their forward passes, on the CPU."""

import sys
from pathlib import Path

import pytest

from prunecast.validation.torch_models import ModelCase
from prunecast.workload.graph.shapes import Pass

torch = pytest.importorskip("torch")
SIZES = {"vocab_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64}
SIZES |= {"intermediate_size": 128, "max_position_embeddings": 64}


@pytest.fixture(scope="module")
def models():
    # From the repository's root, transformers would take its link `kernels` for the package of that name
    here, before = {"", ".", str(Path.cwd())}, list(sys.path)
    sys.path[:] = [each for each in sys.path if each not in here]
    pytest.importorskip("transformers")
    from prunecast.validation.torch_models import models as found

    yield found
    sys.path[:] = before


@pytest.fixture
def llama(models):
    import transformers

    torch.manual_seed(0)
    return transformers.LlamaModel(
        transformers.LlamaConfig(
            **SIZES, num_key_value_heads=2, use_cache=True, attn_implementation=models.without_mask()
        )
    ).eval()


class Watched(torch.nn.Module):
    """A model that notes what each call is given."""

    def __init__(self, model):
        super().__init__()
        self._orig_mod, self.calls = model, []

    def forward(self, ids, **given):
        self.calls.append((ids, given))
        return self._orig_mod(ids, **given)


@torch.no_grad()
@pytest.mark.parametrize(("batch", "tokens"), [(1, 1), (2, 1), (3, 2)])
def test_a_decode_pass_follows_the_cached_tokens_every_time(models, llama, batch, tokens):
    watched = Watched(llama)
    forward = models.passes(ModelCase("llama-2-7b", Pass(batch, tokens, cached=5)), "cpu")(watched)
    first, again = forward(), forward()
    assert first.shape == (batch, tokens, 64)
    assert torch.equal(first, again)
    for ids, given in watched.calls:
        assert ids.shape == (batch, tokens)
        assert given["position_ids"].tolist() == [[*range(5, 5 + tokens)]] * batch
        assert given["cache_position"].tolist() == [*range(5, 5 + tokens)]
        assert {each.max_cache_len for each in given["past_key_values"].layers} == {5 + tokens}


@torch.no_grad()
def test_a_decoded_token_attends_to_all_keys_in_the_cache(models, llama):
    """Beside a cache of transformers that grows, with the same keys and values before the new token."""
    import transformers

    watched = Watched(llama)
    forward = models.passes(ModelCase("llama-2-7b", Pass(2, 1, cached=5)), "cpu")(watched)
    found = forward()
    ((ids, given),) = watched.calls
    grows = transformers.DynamicCache()
    for number, layer in enumerate(given["past_key_values"].layers):
        grows.update(layer.keys[:, :, :5].clone(), layer.values[:, :, :5].clone(), number)
    wanted = llama(ids, past_key_values=grows, position_ids=torch.full((2, 1), 5))
    torch.testing.assert_close(found, wanted.last_hidden_state)


@torch.no_grad()
def test_all_models_decode_the_same_token_after_the_same_keys(models, llama):
    """Each has its own cache, in which it writes."""
    call = models.passes(ModelCase("llama-2-7b", Pass(2, 1, cached=5)), "cpu")
    pair = [Watched(llama) for _ in range(2)]
    outputs = [forward() for forward in [call(each) for each in pair]]
    assert torch.equal(*outputs)
    (ids, given), (other_ids, other) = (each.calls[0] for each in pair)
    assert torch.equal(ids, other_ids)
    assert given["past_key_values"] is not other["past_key_values"]
    for one, two in zip(given["past_key_values"].layers, other["past_key_values"].layers, strict=True):
        assert torch.equal(one.keys, two.keys)
        assert torch.equal(one.values, two.values)
        assert one.keys.data_ptr() != two.keys.data_ptr()


@torch.no_grad()
def test_a_prompt_is_computed_without_a_cache_and_with_the_last_logits_only(models):
    import transformers

    config = transformers.LlamaConfig(**SIZES, attn_implementation=models.without_mask())
    watched = Watched(transformers.LlamaForCausalLM(config).eval())
    call = models.passes(ModelCase("llama-2-7b", Pass(2, 7)), "cpu")
    logits = call(watched)()
    ((ids, given),) = watched.calls
    assert ids.shape == (2, 7)
    assert given == {"use_cache": False, "logits_to_keep": 1}
    assert logits.shape == (2, 1, 512)
    assert torch.equal(ids, (call(watched)(), watched.calls)[1][-1][0])


@torch.no_grad()
def test_an_encoder_is_asked_for_no_cache(models):
    """Its configuration may have the entry too, but its call has no use for it."""
    import transformers

    config = transformers.BertConfig(**SIZES)
    config.use_cache = True
    watched = Watched(transformers.BertModel(config, add_pooling_layer=False).eval())
    assert models.passes(ModelCase("bert-base", Pass(2, 7)), "cpu")(watched)().shape == (2, 7, 64)
    assert [given for _, given in watched.calls] == [{}]


@torch.no_grad()
def test_images_are_those_of_every_model(models):
    import transformers

    config = transformers.ViTConfig(
        hidden_size=64, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64, patch_size=32
    )
    call = models.passes(ModelCase("vit-base-16", Pass(2)), "cpu")
    pair = [Watched(transformers.ViTModel(config, add_pooling_layer=False).eval()) for _ in range(2)]
    assert [call(each)().shape for each in pair] == [(2, 1 + 7 * 7, 64)] * 2
    (images, given), (others, _) = (each.calls[0] for each in pair)
    assert images.shape == (2, 3, 224, 224)
    assert given == {}
    assert torch.equal(images, others)


@pytest.mark.parametrize(
    ("name", "kind", "sizes"),
    [
        ("llama-3-8b", "LlamaModel", (4096, 32, 8, 14336)),
        ("gpt2", "GPT2Model", (768, 12, None, 3072)),
        ("vit-base-16", "ViTModel", (768, 12, None, 3072)),
        ("bert-base", "BertModel", (768, 12, None, 3072)),
    ],
)
def test_a_standard_model_has_the_class_and_sizes_of_its_name(models, name, kind, sizes):
    """Built without memory, and without the pooler, which no prediction has."""
    found = models.make_model(ModelCase(name, Pass(1), blocks=1), torch.float16, "meta")
    config = found.config
    assert type(found).__name__ == kind
    assert not found.training
    assert {p.dtype for p in found.parameters()} == {torch.float16}
    keys = config.num_key_value_heads if kind == "LlamaModel" else None
    inner = config.n_inner if kind == "GPT2Model" else config.intermediate_size
    assert (config.hidden_size, config.num_attention_heads, keys, inner) == sizes
    assert config.num_hidden_layers == 1
    assert config._attn_implementation == models.WITHOUT_MASK
    assert not any("pooler" in part for part, _ in found.named_modules())


@torch.no_grad()
def test_zeros_become_random_numbers_of_the_size_of_what_is_kept(models):
    torch.manual_seed(0)
    layer = torch.nn.Linear(256, 256)
    layer.weight.normal_(0.0, 3.0)
    layer.weight[:, ::2] = 0.0
    layer.bias[:] = 0.0
    kept = layer.weight[:, 1::2].clone()
    empty = torch.nn.Linear(128, 128)
    torch.nn.init.zeros_(empty.weight)
    models.without_zeros(torch.nn.Sequential(layer, empty))
    assert torch.equal(layer.weight[:, 1::2], kept)
    drawn = layer.weight[:, ::2]
    assert float(drawn.square().mean().sqrt()) == pytest.approx(3.0, rel=0.05)
    assert float(drawn.mean()) == pytest.approx(0.0, abs=0.1)
    assert float(empty.weight.square().mean().sqrt()) == pytest.approx(1.0, rel=0.05)
    assert not layer.bias.any()

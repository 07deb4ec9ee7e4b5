"""`prepare_attention` on tiny models of transformers: same results, fewer masks."""

import copy

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from prunecast.errors import BadInput  # noqa: E402
from prunecast.torch import attention, attention_kernels, masked_attention, prepare_attention  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

SIZES = {"vocab_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64}
SIZES |= {"intermediate_size": 128, "max_position_embeddings": 64}
BART = {"layers": 2, "attention_heads": 4, "ffn_dim": 128}
T5 = {"vocab_size": 96, "d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4}
MODELS = {
    "bert": ("BertModel", "BertConfig", SIZES),
    "llama": ("LlamaModel", "LlamaConfig", {**SIZES, "num_key_value_heads": 2}),
    "mistral, short window": (
        "MistralModel",
        "MistralConfig",
        {**SIZES, "sliding_window": 4, "num_key_value_heads": 4},
    ),
    "mistral": ("MistralModel", "MistralConfig", {**SIZES, "sliding_window": 40, "num_key_value_heads": 2}),
    "modernbert": ("ModernBertModel", "ModernBertConfig", {**SIZES, "pad_token_id": 0, "local_attention": 4}),
    "t5": ("T5EncoderModel", "T5Config", T5),
    "roberta": ("RobertaModel", "RobertaConfig", SIZES),
}
IDS = torch.arange(3, 39).reshape(3, 12)
ONES = torch.ones_like(IDS)
RIGHT = (torch.arange(12) < torch.tensor([[12], [7], [3]])).long()
LEFT = RIGHT.flip(1)


def made(name):
    kind, config, sizes = MODELS[name]
    torch.manual_seed(0)
    model = getattr(transformers, kind)(getattr(transformers, config)(**sizes)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_().mul_(2 * parameter.shape[-1] ** -0.5)
    return model


def states(model, mask):
    with torch.no_grad():
        return model(input_ids=IDS, **({} if mask is None else {"attention_mask": mask})).last_hidden_state


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    ("padding", "mask"),
    [("none", None), ("none", ONES), ("right", RIGHT), ("any", RIGHT), ("any", LEFT), ("any", None)],
)
def test_prepared_attention_computes_the_same_of_all_tokens(name, padding, mask):
    plain, prepared = made(name), made(name)
    prepare_attention(prepared, padding=padding)
    real = (ONES if mask is None else mask).bool()
    y, wanted = states(prepared, mask)[real], states(plain, mask)[real]
    assert torch.allclose(y, wanted, rtol=1e-4, atol=1e-4)
    is_causal = name not in ("bert", "roberta", "t5", "modernbert")
    if mask is LEFT or (mask is RIGHT and not is_causal):
        assert not torch.allclose(states(plain, ONES)[real], wanted, atol=1e-2), "the mask matters"


@pytest.mark.parametrize(
    ("name", "padding", "mask", "kernels"),
    [
        ("bert", "none", ONES, {"no mask"}),
        ("bert", "right", RIGHT, {"mask"}),
        ("llama", "none", ONES, {"causal"}),
        ("llama", "right", RIGHT, {"causal"}),
        ("llama", "any", RIGHT, {"mask"}),
        ("mistral", "none", None, {"causal"}),
        ("mistral, short window", "none", None, {"mask"}),
        ("modernbert", "none", None, {"no mask", "mask"}),
        ("t5", "none", None, {"mask"}),
    ],
)
def test_masks_are_read_only_where_they_are_needed(name, padding, mask, kernels):
    given = {"input_ids": IDS, **({} if mask is None else {"attention_mask": mask})}
    found = prepare_attention(made(name), padding=padding, example=given)
    assert {kernel.partition(", ")[2] for kernel in found.kernels.values()} == kernels
    assert len(found.kernels) == 2 or name == "modernbert"
    assert all("attention" in module.lower() or "attn" in module for module in found.kernels)
    pairs = "_pairs" if name == "t5" else ""
    assert f"attention prunecast_{padding}{pairs}: " in str(found)


def masks_of(model, given):
    """Masks and biases of attention in the graph that torch.compile traces."""
    masks = []

    def backend(graph, _):
        masks.extend(
            node.kwargs.get("attn_mask")
            for node in graph.graph.nodes
            if "scaled_dot_product_attention" in str(node.target)
        )
        return graph.forward

    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(model, backend=backend)(**given)
    return masks


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "padding", "mask"),
    [
        ("bert", "none", ONES),
        ("bert", "none", None),
        ("llama", "none", ONES),
        ("llama", "none", None),
        ("llama", "right", RIGHT),
    ],
)
def test_traced_graphs_have_no_masks(name, padding, mask):
    model = made(name)
    given = {"input_ids": IDS, **({} if mask is None else {"attention_mask": mask})}
    if name == "llama":
        given["use_cache"] = False
    if name == "llama" or mask is not None:  # versions differ in what they do without one
        assert [each is None for each in masks_of(model, given)] == [False, False]
    prepare_attention(model, padding=padding)
    assert masks_of(model, given) == [None, None]


def test_biases_and_masks_have_strides_that_fused_kernels_accept(monkeypatch):
    from transformers.integrations import sdpa_attention

    seen = []
    whole = sdpa_attention.sdpa_attention_forward

    def recorded(module, query, key, value, attention_mask, **options):
        seen.append((attention_mask, options.get("position_bias")))
        return whole(module, query, key, value, attention_mask, **options)

    monkeypatch.setattr(sdpa_attention, "sdpa_attention_forward", recorded)
    model = made("t5")
    prepare_attention(model, padding="any")
    states(model, RIGHT)
    assert len(seen) == 2
    assert all(mask.stride(-1) == 1 and bias.stride(-1) == 1 for mask, bias in seen)


@pytest.mark.parametrize(("padding", "mask"), [("none", RIGHT), ("right", LEFT)])
def test_a_mask_of_another_padding_is_refused(padding, mask):
    model = made("llama")
    prepare_attention(model, padding=padding)
    with pytest.raises(BadInput, match=f"prepared for padding='{padding}', got a mask of another"):
        states(model, mask)


def test_text_is_generated_with_any_cache():
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**SIZES, num_key_value_heads=2, bos_token_id=1, eos_token_id=2)
    plain = transformers.LlamaForCausalLM(config).eval()
    prepared = copy.deepcopy(plain)
    prepare_attention(prepared, padding="none")
    options = {"max_new_tokens": 5, "do_sample": False, "attention_mask": ONES, "pad_token_id": 0}
    options["disable_compile"] = True
    wanted = plain.generate(IDS, **options)
    assert torch.equal(prepared.generate(IDS, **options), wanted)
    assert torch.equal(prepared.generate(IDS, **options, cache_implementation="static"), wanted)


def test_models_whose_attention_cannot_be_prepared_are_refused():
    with pytest.raises(BadInput, match="models of transformers, got Linear"):
        prepare_attention(torch.nn.Linear(8, 8))
    gemma = transformers.Gemma2Model(transformers.Gemma2Config(**SIZES, num_key_value_heads=2, head_dim=16))
    with pytest.raises(BadInput, match="Gemma2Model caps attention scores"):
        prepare_attention(gemma)
    with pytest.raises(BadInput, match="padding must be one of none, right, any, got 'left'"):
        prepare_attention(made("bert"), padding="left")


def test_kernels_of_any_module_are_found():
    model = torch.nn.MultiheadAttention(16, 2, batch_first=True).eval().train()
    x = torch.randn(2, 5, 16)
    found = attention_kernels(model, {"query": x, "key": x, "value": x, "need_weights": False})
    assert set(found) == {""}
    assert "no mask" in found[""]


def attended_by_torch(query, key, value, mask, scale):
    return torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask[:, None, None, :], scale=scale
    ).transpose(1, 2)


@pytest.fixture
def own_calls(monkeypatch):
    """Calls with masks of keys, which are used on a CPU too. The operator calls torch's attention there."""
    calls, attend = [], masked_attention.attend

    def counted(*given):
        calls.append(given)
        return attend(*given)

    monkeypatch.setattr(masked_attention, "attend", counted)
    monkeypatch.setattr(masked_attention, "runs_on", lambda device, dtype: True)
    monkeypatch.setattr(masked_attention, "WIDTHS", (16,))
    return calls


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("padding", "mask"), [("right", RIGHT), ("any", RIGHT), ("any", LEFT)])
def test_masks_of_keys_give_the_same_states(name, padding, mask, own_calls):
    plain, prepared = made(name), made(name)
    prepare_attention(prepared, padding=padding)
    real = mask.bool()
    wanted = states(plain, mask)[real]
    assert torch.allclose(states(prepared, mask)[real], wanted, rtol=1e-4, atol=1e-4)
    assert len(own_calls) == {"bert": 2, "roberta": 2, "modernbert": 1}.get(name, 0)


def test_dropout_and_gradients_are_left_to_torch(own_calls):
    model = made("bert")
    prepare_attention(model, padding="right")
    model(input_ids=IDS, attention_mask=RIGHT).last_hidden_state.sum().backward()
    with torch.no_grad():
        model.train()(input_ids=IDS, attention_mask=RIGHT)
    assert not own_calls


@pytest.mark.parametrize("heads", [4, 2])
@pytest.mark.parametrize("columns", [False, True])
def test_the_operator_gives_zeros_where_no_key_counts(heads, columns):
    torch.manual_seed(0)
    query, key, value = (torch.randn(3, each, 8, 16) for each in (4, heads, heads))
    mask = torch.tensor([[True] * 8, [True] * 3 + [False] * 5, [False] * 8])
    y = torch.ops.prunecast.attention.default(query, key, value, mask, 0.3, columns)
    fake = torch.library.opcheck(
        torch.ops.prunecast.attention.default,
        (query, key, value, mask, 0.3, columns),
        test_utils=("test_schema", "test_faketensor"),
    )
    assert set(fake.values()) == {"SUCCESS"}
    y = y.view(4, 16, 3, 8).permute(2, 3, 0, 1) if columns else y
    assert y.shape == (3, 8, 4, 16)
    assert not y[2].any()
    keys, values = (each.repeat_interleave(4 // heads, 1) for each in (key, value))
    assert torch.allclose(y[:2], attended_by_torch(query, keys, values, mask, 0.3)[:2], atol=1e-5)


@pytest.mark.parametrize("beams", [1, 3])
def test_decoders_attend_to_the_keys_that_count(beams, own_calls):
    """Cross-attention has other queries than keys, and generates with a cache."""
    torch.manual_seed(0)
    sizes = {f"{part}_{name}": size for part in ("encoder", "decoder") for name, size in BART.items()}
    ends = {"bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2, "forced_eos_token_id": None}
    config = transformers.BartConfig(vocab_size=96, d_model=64, max_position_embeddings=64, **sizes, **ends)
    plain = transformers.BartForConditionalGeneration(config).eval()
    prepared = copy.deepcopy(plain)
    prepare_attention(prepared, padding="right")
    given = {"decoder_input_ids": IDS[:, :5], "attention_mask": RIGHT}
    with torch.no_grad():
        wanted, whole = (plain(IDS, **{**given, "attention_mask": mask}).logits for mask in (RIGHT, ONES))
        assert torch.allclose(prepared(IDS, **given).logits, wanted, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(whole, wanted, atol=1e-3), "the mask matters"
    assert len(own_calls) == 4
    options = {"attention_mask": RIGHT, "max_new_tokens": 6, "num_beams": beams, "do_sample": False}
    assert torch.equal(prepared.generate(IDS, **options), plain.generate(IDS, **options))


def test_launches_of_many_sizes_are_not_kept_for_ever(monkeypatch):
    monkeypatch.setattr(masked_attention, "_CALLS", {})
    monkeypatch.setattr(masked_attention, "MOST_CALLS", 3)
    monkeypatch.setattr(masked_attention, "supports", lambda *_: False)
    for keys in range(1, 9):
        x = torch.ones(1, 1, keys, 8)
        y = masked_attention._attend_on_cuda(masked_attention.AttentionCall(x, x, x, None, 1.0))
        assert torch.equal(y, torch.ones(1, keys, 1, 8))
        assert len(masked_attention._CALLS) <= 3


@pytest.mark.parametrize("name", ["attention_mask", "past_key_values", "position_ids"])
def test_a_mask_of_ones_is_added_only_where_nothing_says_which_tokens_count(name):
    module, seen = torch.nn.Identity(), []
    module.forward = lambda ids, **given: seen.append(given)
    module.register_forward_pre_hook(attention._give_mask, with_kwargs=True)
    module(IDS)
    assert torch.equal(seen.pop()["attention_mask"], torch.ones_like(IDS))
    module(IDS, **{name: "something"})
    assert seen.pop() == {name: "something"}
    module(IDS.float())
    assert seen.pop() == {}


def operands(*, heads=4, key_heads=4, keys=32, width=64, value_keys=None, dtype=torch.float16):
    shapes = ((heads, 8), (key_heads, keys), (key_heads, value_keys or keys))
    return [torch.zeros(2, *shape, width, dtype=dtype) for shape in shapes]


@pytest.mark.parametrize(
    ("changes", "fits"),
    [
        ({}, True),
        ({"width": 128, "key_heads": 1}, True),
        ({"key_heads": 2}, True),
        ({"key_heads": 3}, False),
        ({"width": 32}, False),
        ({"width": 96}, False),
        ({"keys": 2048}, True),
        ({"keys": 2049}, False),
        ({"keys": 32, "value_keys": 31}, False),
    ],
)
def test_the_kernel_has_widths_of_64_and_128_and_up_to_2048_keys(changes, fits, monkeypatch):
    assert not masked_attention.supports(*operands(**changes))  # on a CPU
    monkeypatch.setattr(masked_attention, "runs_on", lambda device, dtype: True)
    query, key, value = operands(**changes)
    assert masked_attention.supports(query, key, value) == fits
    assert not masked_attention.supports(query, key, value.to(torch.bfloat16))
    assert not masked_attention.supports(query.requires_grad_(), key, value)
    with torch.no_grad():
        assert masked_attention.supports(query, key, value) == fits


@pytest.mark.parametrize(
    ("device", "capability", "dtype", "runs"),
    [
        ("cuda", (8, 0), torch.float16, True),
        ("cuda", (9, 0), torch.bfloat16, True),
        ("cuda", (7, 5), torch.float16, False),
        ("cuda", (7, 9), torch.float16, False),
        ("cuda", (9, 0), torch.float32, False),
        ("cuda", (9, 0), None, False),
        ("cpu", (9, 0), torch.float16, False),
    ],
)
def test_the_kernel_runs_in_16_bits_from_ampere_on(device, capability, dtype, runs, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    assert masked_attention.runs_on(torch.device(device), dtype) == runs


@pytest.mark.parametrize(
    ("options", "keys", "mask", "runs"),
    [
        ({}, 32, (2, 32), True),
        ({"dropout": 0.0, "position_bias": None, "softcap": None, "cache": None}, 32, (2, 32), True),
        ({"dropout": 0.1}, 32, (2, 32), False),
        ({"position_bias": 0}, 32, (2, 32), False),
        ({"softcap": 0.0}, 32, (2, 32), False),
        ({"cache": ()}, 32, (2, 32), False),
        ({}, 32, (2, 1, 8, 32), False),  # a mask of pairs of tokens
        ({}, 32, (2, 31), False),
        ({}, 32, None, False),  # modules are causal unless they say otherwise
        ({"is_causal": True}, 32, None, False),
        ({"is_causal": False}, 32, None, True),
        ({"is_causal": False}, 2048, None, False),  # torch's attention is faster there
        ({"is_causal": True}, 2048, (2, 2048), True),
    ],
)
def test_the_kernel_runs_calls_with_a_mask_of_keys_or_few_keys(options, keys, mask, runs, monkeypatch):
    monkeypatch.setattr(masked_attention, "runs_on", lambda device, dtype: True)
    read = None if mask is None else torch.ones(mask, dtype=torch.bool)
    module, own = torch.nn.Module(), operands(keys=keys)
    assert attention._runs_own_kernel(module, own, read, options) == runs
    if mask is None and not options:
        module.is_causal = False
        assert attention._runs_own_kernel(module, own, read, options)

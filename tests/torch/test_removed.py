"""Folders without some heads, widths, layers or experts: logits are those of the source with these masked."""

import json

import numpy as np
import pytest

from prunecast.codesign import prune
from prunecast.codesign.search import Targets, prune_model
from prunecast.errors import BadInput
from prunecast.workload.graph.families import families
from prunecast.workload.layers import Removed
from tests.torch.tiny_models import CLASSES, NO_CLASS, tiny

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from prunecast.torch import expert_saliency, input_squares, load  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

WIDE = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 8}
TEXT = {**WIDE, "vocab_size": 96, "num_key_value_heads": 4, "max_position_embeddings": 64}
IDS = torch.arange(18).reshape(2, 9)
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
HEADS, WIDTHS, LAYERS = "heads:0.5", "widths:0.25", "layers:0.34"
MADE = {
    "Llama": ({}, [HEADS, WIDTHS, LAYERS]),
    "Qwen2": ({"tie_word_embeddings": True}, [HEADS, WIDTHS, LAYERS]),
    "OPT": ({"ffn_dim": 128, "word_embed_proj_dim": 32, "do_layer_norm_before": False}, [WIDTHS, LAYERS]),
    "GPTNeoX": ({}, [WIDTHS]),
    "Phi3": ({"pad_token_id": 0, "eos_token_id": 1}, [HEADS, WIDTHS]),
    "Mixtral": (EXPERTS, ["heads:0.25", "experts:0.25"]),
    "Qwen3Moe": ({**EXPERTS, "moe_intermediate_size": 32, "norm_topk_prob": True}, ["experts:0.5", LAYERS]),
}


def holder_of(model):
    """Return the module with the list of layers, which is the model itself or a decoder in it."""
    return next(
        each for each in model.modules() if isinstance(getattr(each, "layers", None), torch.nn.ModuleList)
    )


def part_of(model, layer, part):
    """Return the module of a layer with the role `part`, such as `output`, by its name in `families.toml`."""
    modules, names = dict(layer.named_modules()), families()[model.config.model_type].tensors
    return next(modules[name] for name, own in names.items() if own == part and name in modules)


def saved(name, folder, *, uneven=False):
    """Write a small model with random weights and return it; later layers have larger ones if `uneven`."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**{**TEXT, **MADE[name][0]})
    model = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # biases too, which start at zero
            parameter.normal_(std=0.1)
        for place, layer in enumerate(holder_of(model).layers if uneven else ()):
            for parameter in layer.parameters():
                parameter.mul_(1.0 + 0.1 * place)
    model.save_pretrained(folder, max_shard_size="60KB")
    return model


def logits(model):
    with torch.no_grad():
        return model.eval()(input_ids=IDS).logits


def kept_of(folder):
    rows = json.loads((folder / "recipe.json").read_text())["removed"]
    return {row["part"]: row["kept"] for row in rows}


def mask(model, kept):
    """Mask the parts of a model that are not kept, without changing a size."""
    holder = holder_of(model)
    layers = holder.layers
    if "layers" in kept:
        holder.layers = torch.nn.ModuleList(layers[place] for place in kept["layers"])
        for place, layer in enumerate(holder.layers):
            layer.self_attn.layer_idx = place
        model.config.num_hidden_layers = len(kept["layers"])
    with torch.no_grad():
        for place, heads in kept.get("heads", {}).items():
            groups = model.config.num_key_value_heads
            inputs = part_of(model, layers[int(place)], "output").weight.view(64, groups, -1)
            inputs[:, np.setdiff1d(np.arange(groups), heads)] = 0
        for place, widths in kept.get("widths", {}).items():
            inputs = part_of(model, layers[int(place)], "down").weight
            inputs[:, np.setdiff1d(np.arange(inputs.shape[1]), widths)] = 0
        for place, experts in kept.get("experts", {}).items():
            router = part_of(model, layers[int(place)], "router")
            never_chosen(router, np.setdiff1d(np.arange(len(router.weight)), experts))


def never_chosen(router, experts):
    """Give the router logits of some experts no probability."""
    linear = torch.nn.functional.linear

    def forward(x):
        x = x.reshape(-1, x.shape[-1])
        scores = linear(x, router.weight).float()
        scores[:, experts] = -torch.inf
        weights, chosen = scores.softmax(-1).topk(2)
        return scores, weights / weights.sum(-1, keepdim=True), chosen

    router.forward = forward


@pytest.mark.parametrize("name", MADE)
def test_logits_are_those_of_the_source_with_the_parts_masked(name, tmp_path):
    source = saved(name, tmp_path / "source")
    whole = logits(source)
    prune(Removed(weights=tmp_path / "source", parts=MADE[name][1]), pattern="dense", out=tmp_path / "out")
    smaller = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype="auto")
    assert smaller.num_parameters() < source.num_parameters()
    mask(source, kept_of(tmp_path / "out"))
    masked = logits(source)
    assert torch.allclose(logits(smaller), masked, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(masked, whole, rtol=1e-2, atol=1e-2)


UNEVEN = {
    "Llama": ["heads:0.5/uneven", "widths:0.25/uneven", LAYERS],
    "Qwen2": ["widths:0.25/uneven"],
    "OPT": ["widths:0.25/uneven", LAYERS],
    "GPTNeoX": ["widths:0.25/uneven"],
    "Phi3": ["heads:0.25/uneven", "widths:0.5/uneven"],
    "Mixtral": ["heads:0.25/uneven", "experts:0.25"],
    "Qwen3Moe": ["heads:0.5/uneven"],
}


@pytest.mark.parametrize("name", MADE)
def test_layers_of_their_own_sizes_are_those_of_the_masked_source(name, tmp_path):
    source = saved(name, tmp_path / "source", uneven=True)
    prune(Removed(weights=tmp_path / "source", parts=UNEVEN[name]), pattern="dense", out=tmp_path / "out")
    kept = kept_of(tmp_path / "out")
    for part in {"heads", "widths"} & kept.keys():
        assert len({len(own) for own in kept[part].values()}) > 1
    assert json.loads((tmp_path / "out" / "config.json").read_text())["per_layer_config"]
    smaller = load(tmp_path / "out", dtype=torch.float32)
    mask(source, kept)
    assert torch.allclose(logits(smaller), logits(source), rtol=1e-4, atol=1e-4)
    smaller.save_pretrained(tmp_path / "again")
    assert torch.equal(logits(load(tmp_path / "again", dtype=torch.float32)), logits(smaller))


@pytest.mark.parametrize("lost", ["recipe.json", "weights.safetensors"])
def test_a_state_without_its_recipe_or_its_weights_is_refused_before_a_weight_is_loaded(lost, tmp_path):
    weight = torch.randn(64, 64)
    prune({"weight": weight.numpy()}, pattern="tile-wise:64", sparsity=0.5, out=tmp_path / "out")
    (tmp_path / "out" / lost).unlink()
    model = torch.nn.Linear(64, 64, bias=False)
    before = model.weight.detach().clone()
    with pytest.raises(BadInput, match=r"wanted weights.safetensors and recipe.json, as prunecast prune"):
        load(tmp_path / "out", model, gpu="h200-sxm", max_tokens=8)
    assert torch.equal(model.weight, before)


def test_models_made_after_one_of_own_sizes_are_as_before(tmp_path):
    saved("Llama", tmp_path / "source", uneven=True)
    removed = Removed(weights=tmp_path / "source", parts=["widths:0.25/uneven"])
    prune(removed, pattern="dense", out=tmp_path / "out")
    load(tmp_path / "out")
    whole = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "source")
    assert whole.model.layers[2].mlp.up_proj.weight.shape == (128, 64)


def test_a_search_chooses_widths_for_each_layer(tmp_path):
    saved("Llama", tmp_path / "source", uneven=True)
    asked = {"gpu": "h200-sxm", "engine": "model", "families": ["2:4"], "remove": ["widths"]}
    found = prune_model(tmp_path / "source", Targets(sparsity=0.6), out=tmp_path / "out", **asked)
    (row,) = found.removed
    assert len(row["after"]) == 3
    assert len(set(row["after"])) > 1
    equal = f"widths:{row['share']}"
    even = prune_model(tmp_path / "source", Targets(sparsity=0.6), **{**asked, "remove": [equal]})
    assert found.result.retained_importance > even.result.retained_importance
    smaller = load(tmp_path / "out", dtype=torch.half)
    assert [layer.mlp.up_proj.weight.shape[0] for layer in smaller.model.layers] == row["after"]


def test_removed_parts_and_a_pattern_mix_in_one_folder(tmp_path):
    source = saved("Llama", tmp_path / "source")
    removed = Removed(weights=tmp_path / "source", parts=[WIDTHS])
    prune(removed, pattern="2:4", out=tmp_path / "out", target=["re:mlp"])
    smaller = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype="auto")
    up = smaller.model.layers[0].mlp.up_proj.weight
    assert up.shape == (96, 64)
    assert int((up != 0).sum()) == up.numel() // 2
    kept = kept_of(tmp_path / "out")["widths"]["0"]
    own = source.model.layers[0].mlp.up_proj.weight[kept]
    assert torch.equal(up[up != 0], own[up != 0])


def test_a_search_mixes_removed_parts_with_patterns(tmp_path):
    saved("Llama", tmp_path / "source")
    found = prune_model(
        tmp_path / "source",
        Targets(sparsity=0.4),
        out=tmp_path / "out",
        gpu="h200-sxm",
        engine="model",
        families=["2:4"],
        remove=["widths", HEADS],
    )
    assert found.result.sparsity >= 0.4
    assert kept_of(tmp_path / "out").keys() >= {"heads"}
    smaller = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.half)
    assert smaller.config.num_key_value_heads == 2
    logits(smaller)


def test_input_statistics_decide_which_widths_stay(tmp_path):
    source = saved("Llama", tmp_path / "source")
    squares = input_squares(source, lambda: source(IDS))
    down = "model.layers.{}.mlp.down_proj.weight"
    for layer in range(3):  # inputs of the first widths are never used, those of the last ones always are
        squares[down.format(layer)] = np.arange(128, dtype=np.float32) ** 8
    from safetensors.numpy import save_file

    save_file(squares, tmp_path / "squares.safetensors")
    removed = Removed(weights=tmp_path / "source", parts=[WIDTHS], calibrate=tmp_path / "squares.safetensors")
    prune(removed, pattern="dense", out=tmp_path / "out")
    assert kept_of(tmp_path / "out")["widths"]["1"] == list(range(32, 128))
    (row,) = json.loads((tmp_path / "out" / "recipe.json").read_text())["removed"]
    assert (row["criterion"], row["before"], row["after"]) == ("inputs", 128, 96)


@pytest.mark.parametrize("name", ["Mixtral", "Qwen3Moe"])
def test_experts_stay_by_their_mean_weighted_norm(name, tmp_path):
    source = saved(name, tmp_path / "source")
    found = expert_saliency(source, lambda: source(IDS), tmp_path / "reap.safetensors")
    wanted = reap(source)
    for layer in range(3):
        np.testing.assert_allclose(found[f"layers.{layer}.experts"], wanted[layer], rtol=1e-3)
    removed = Removed(
        weights=tmp_path / "source", parts=["experts:0.5"], calibrate=tmp_path / "reap.safetensors"
    )
    prune(removed, pattern="dense", out=tmp_path / "out")
    kept = kept_of(tmp_path / "out")["experts"]
    assert {int(layer): set(own) for layer, own in kept.items()} == {
        layer: set(np.argsort(-own)[:2]) for layer, own in wanted.items()
    }


def reap(model):
    """Return layer -> the saliency of each expert, one token and one expert at a time."""
    inputs, routed = {}, {}
    for place, layer in enumerate(model.model.layers):
        layer.mlp.experts.register_forward_pre_hook(
            lambda _, given, place=place: (
                inputs.update({place: given[0]}) or routed.update({place: given[1:3]})
            )
        )
    logits(model)
    found = {}
    for place, layer in enumerate(model.model.layers):
        experts, sums = layer.mlp.experts, {}
        for token, x in enumerate(inputs[place]):
            for chosen, weight in zip(*(own[token] for own in routed[place]), strict=True):
                gate, up = (experts.gate_up_proj[chosen] @ x).chunk(2)
                y = experts.down_proj[chosen] @ (torch.nn.functional.silu(gate) * up)
                sums.setdefault(int(chosen), []).append(float((weight * y.norm()).detach()))
        found[place] = np.array([np.mean(sums.get(each, [0.0])) for each in range(4)])
    return found


REFUSED = {
    "a part that no model has": (["neurons:0.5"], "remove must be one of layers, heads, widths, experts"),
    "a share of one": (["heads:1"], "a share between 0 and 1, like heads:0.25, got 'heads:1'"),
    "a part twice": (["heads:0.5", "heads:0.25"], "wanted every part once, got heads twice"),
    "experts of a dense model": (["experts:0.25"], "has no experts"),
    "nothing left": (["layers:0.9"], "layers:0.9 leaves 0 of 3 layers"),
    "nothing removed": (["layers:0.1"], "layers:0.1 leaves 3 of 3 layers"),
    "experts for each layer": (["experts:0.5/uneven"], "only heads and widths can be uneven"),
    "heads that transformers cannot load": (["heads:0.25"], "only if its heads divide the 64 features"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_parts_that_cannot_be_removed_are_refused_and_nothing_is_written(what, tmp_path):
    parts, complaint = REFUSED[what]
    saved("Llama", tmp_path / "source")
    with pytest.raises(BadInput, match=complaint):
        prune(Removed(weights=tmp_path / "source", parts=parts), pattern="dense", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


HAVE_EXPERTS = {"mixtral", "qwen3_moe", "gpt_oss"}
NEVER = {"deepseek_v3", "WhisperEncoder", "T5EncoderModel"}
"""Families with latent attention, sound or biases of positions, of which nothing is removed."""
ALSO_KEEP_HEADS = NEVER | {"gpt_oss", "falcon"}
"""Families with sinks of heads, or (the tiny Falcon) with one key head."""
NO_HEAD_WIDTH = {family for family in CLASSES if "head_width" not in families()[family].fields}
NO_HEAD_WIDTH -= ALSO_KEEP_HEADS


@pytest.mark.parametrize("part", ["heads:0.5", "heads:0.5/uneven", "widths:0.5", "layers:0.5", "experts:0.5"])
@pytest.mark.parametrize("family", CLASSES)
def test_a_family_loses_parts_and_transformers_loads_the_rest_or_it_is_refused(family, part, tmp_path):
    model = tiny(family)
    model.save_pretrained(tmp_path / "source")
    removed = Removed(weights=tmp_path / "source", parts=[part])
    refused = {
        "heads": NO_HEAD_WIDTH | ALSO_KEEP_HEADS,
        "widths": {*HAVE_EXPERTS, *NEVER},
        "layers": {"gpt_oss", "gemma2", "gemma3_text", *NEVER},
        "experts": CLASSES.keys() - HAVE_EXPERTS,
    }
    is_refused = family in refused[part.partition(":")[0]]
    if is_refused:
        is_without_width = part.startswith("heads") and family in NO_HEAD_WIDTH
        with pytest.raises(BadInput, match="no width of a head" if is_without_width else None):
            prune(removed, pattern="dense", out=tmp_path / "out")
        assert not (tmp_path / "out").exists()
        return
    prune(removed, pattern="dense", out=tmp_path / "out")
    smaller = load(tmp_path / "out", dtype=torch.float32)
    assert sum(each.numel() for each in smaller.parameters()) < sum(
        each.numel() for each in model.parameters()
    )
    given = {"pixel_values": torch.randn(1, 3, 224, 224)} if family == "vit" else {"input_ids": IDS}
    with torch.no_grad():
        assert torch.isfinite(smaller(**given)[0]).all()


def test_every_family_is_tried():
    assert {*CLASSES, *NO_CLASS} == families().keys()

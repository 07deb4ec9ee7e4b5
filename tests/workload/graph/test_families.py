"""Families of models are data: an entry makes checkpoints of a new one known."""

import json
import tomllib
from dataclasses import replace
from importlib import resources
from pathlib import Path

import pytest

from prunecast.errors import BadInput
from prunecast.workload.graph import Pass, config
from prunecast.workload.graph.config import checkpoint_shape, graph_of_tensors
from prunecast.workload.graph.families import families, families_of
from prunecast.workload.graph.shapes import Transformer, transformers
from prunecast.workload.layers import Removed

FOLDER = resources.files("prunecast.workload.graph")
TEXT = FOLDER.joinpath("families.toml").read_text(encoding="utf-8")
ROWS = FOLDER.joinpath("transformers.toml").read_text(encoding="utf-8")
NEW = """
[smollm]
like = "mistral"
fields.hidden = { names = ["d_model"] }
fields.feed_forward = { names = ["d_ff"], default = "hidden", times = 3 }
tensors."attn.out" = "output"
"""


def test_a_family_is_an_entry_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    extended = families_of(tomllib.loads(TEXT + NEW))
    monkeypatch.setattr(config, "families", lambda: extended)
    config._parts.cache_clear()
    path = tmp_path / "config.json"
    said = {"model_type": "smollm", "d_model": 64, "num_hidden_layers": 1, "num_attention_heads": 4}
    path.write_text(json.dumps({**said, "vocab_size": 9, "sliding_window": 16}))
    shape = checkpoint_shape(path)
    assert shape == Transformer(
        layers=1,
        hidden=64,
        heads=4,
        key_heads=4,
        feed_forward=192,
        gated=True,
        rms_norm=True,
        rotary=True,
        window=16,
        head=9,
    )
    tensor = "model.layers.0.attn.out.weight"
    model = graph_of_tensors("x", shape, Pass(1, 8), {tensor: (64, 64)})
    assert model is not None
    assert (model[tensor].m, model[tensor].k) == (64, 64)
    assert "layer.0.output" not in model.graph
    config._parts.cache_clear()


def test_widths_that_config_json_does_not_state_are_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {"model_type": "smollm", "d_model": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    (tmp_path / "config.json").write_text(json.dumps({**sizes, "vocab_size": 9}))

    def left(rows: str, part: str) -> Transformer:
        extended = families_of(tomllib.loads(TEXT + rows))
        monkeypatch.setattr(config, "families", lambda: extended)
        return Removed(weights=tmp_path, parts=[part]).sizes()

    assert left(NEW, "widths:0.5").feed_forward == 96
    fixed = NEW.replace('names = ["d_ff"], ', "")
    assert left(fixed, "layers:0.5").layers == 1
    with pytest.raises(BadInput, match="widths are not removed from a smollm"):
        left(fixed, "widths:0.5")


SOUND = {
    "model_type": "whisper",
    "d_model": 64,
    "encoder_layers": 2,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 128,
    "num_mel_bins": 80,
}
BIASED = {"model_type": "t5", "d_model": 64, "num_layers": 1, "num_heads": 2, "d_kv": 16, "d_ff": 128}


def test_a_part_of_a_model_is_known_by_its_class(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(SOUND))
    assert checkpoint_shape(path) is None
    path.write_text(json.dumps({**SOUND, "architectures": ["WhisperForConditionalGeneration"]}))
    assert checkpoint_shape(path) is None
    path.write_text(json.dumps({**SOUND, "architectures": ["WhisperEncoder"]}))
    sizes = {"layers": 2, "hidden": 64, "heads": 2, "feed_forward": 128}
    assert checkpoint_shape(path) == Transformer(**sizes, mels=80, causal=False)


@pytest.mark.parametrize("gated", [False, True])
def test_a_gate_is_a_field_of_the_configuration(tmp_path: Path, gated: bool) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**BIASED, "architectures": ["T5EncoderModel"], "is_gated_act": gated}))
    shape = checkpoint_shape(path)
    assert shape is not None
    assert (shape.gated, shape.width, shape.position_bias, shape.causal) == (gated, 32, True, False)


def test_no_name_of_a_matrix_means_two_things() -> None:
    for table in ("tensors", "experts", "outside"):
        meanings: dict[str, str] = {}
        for family in families().values():
            for name, part in getattr(family, table).items():
                assert meanings.setdefault(name, part) == part


def test_a_size_follows_from_sizes_that_are_read_before_it() -> None:
    for family in families().values():
        seen: set[str] = set()
        for size, fields in family.fields.items():
            assert size in Transformer.__dataclass_fields__
            for field in fields:
                assert not isinstance(field.default, str) or field.default in seen
                assert field.companion in ("", *seen)
                assert field.names or isinstance(field.default, str | int), (
                    "a size without names has a default"
                )
            seen.add(size)


FALCON = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 8, "vocab_size": 9}
NEW_LAYERS = {"new_decoder_architecture": True}


@pytest.mark.parametrize(
    ("given", "key_heads", "norms", "rotary"),
    [
        ({}, 1, 1, True),
        ({"multi_query": None, "parallel_attn": None, "alibi": None}, 1, 1, True),
        ({"multi_query": False, "num_kv_heads": 2}, 8, 1, True),
        ({"alibi": True, "multi_query": False, "parallel_attn": False}, 8, 0, False),
        (NEW_LAYERS, 8, 2, True),
        ({**NEW_LAYERS, "num_kv_heads": 2, "parallel_attn": False}, 2, 2, True),
        ({**NEW_LAYERS, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1}, 2, 1, True),
    ],
)
def test_the_first_location_that_applies_counts(
    given: dict[str, object], key_heads: int, norms: int, rotary: bool
) -> None:
    shape = Transformer(**families()["falcon"].sizes({**FALCON, **given}, "x"))
    assert (shape.key_heads, shape.parallel_norms, bool(shape.rotary)) == (key_heads, norms, rotary)
    assert (shape.feed_forward, shape.fused_qkv, shape.tied_head) == (256, True, True)


NEOX = {**FALCON, "intermediate_size": 256}


@pytest.mark.parametrize(
    ("given", "norms"),
    [({}, 2), ({"use_parallel_residual": None}, 2), ({"use_parallel_residual": False}, 0)],
)
def test_a_gpt_neox_says_whether_its_parts_run_in_parallel(given: dict[str, object], norms: int) -> None:
    shape = Transformer(**families()["gpt_neox"].sizes({**NEOX, **given}, "x"))
    assert (shape.parallel_norms, shape.rotary, shape.qkv_by_head, shape.tied_head) == (
        norms,
        True,
        True,
        False,
    )
    assert shape.embedding_rows == shape.head == 9


@pytest.mark.parametrize(
    ("family", "given", "wanted"),
    [
        (
            "gpt_neox",
            {"use_parallel_residual": "yes"},
            "use_parallel_residual must be true or false, got 'yes'",
        ),
        ("gpt_neox", {"use_parallel_residual": 1}, "use_parallel_residual must be true or false, got 1"),
        ("opt", {"activation_function": True}, "activation_function must be a text, got True"),
    ],
)
def test_a_condition_of_another_type_is_refused(family: str, given: dict[str, object], wanted: str) -> None:
    config = {**NEOX, **OPT, **given}
    with pytest.raises(BadInput, match=f"^config.json: {wanted}$"):
        families()[family].sizes(config, "config.json")


OPT = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 8, "ffn_dim": 128, "vocab_size": 9}


@pytest.mark.parametrize(
    ("given", "norm_first", "relu", "embedded"),
    [
        ({}, True, True, 64),
        (
            {"do_layer_norm_before": True, "activation_function": "relu", "word_embed_proj_dim": 64},
            True,
            True,
            64,
        ),
        (
            {"do_layer_norm_before": None, "activation_function": None, "word_embed_proj_dim": None},
            True,
            True,
            64,
        ),
        ({"do_layer_norm_before": False, "word_embed_proj_dim": 32}, False, True, 32),
        ({"activation_function": "gelu"}, True, False, 64),
    ],
)
def test_an_opt_says_its_norms_its_activation_and_its_embedding(
    given: dict[str, object], norm_first: bool, relu: bool, embedded: int
) -> None:
    shape = Transformer(**families()["opt"].sizes({**OPT, **given}, "x"))
    assert (bool(shape.norm_first), bool(shape.relu), shape.embedded) == (norm_first, relu, embedded)
    assert (shape.tied_head, shape.embedding_rows) == (True, 0)


def test_a_standard_model_may_be_a_configuration() -> None:
    rows = tomllib.loads(ROWS)
    own = {name: row for name, row in rows.items() if "config" in row}
    assert own
    for name, row in own.items():
        read = Transformer(**families()[row["family"]].sizes(row["config"], name))
        stated = {fact: value for fact, value in row.items() if fact not in ("family", "config")}
        assert transformers()[name] == replace(read, **stated), "facts in the row count before the family's"

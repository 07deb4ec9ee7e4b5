"""Benchmarks of models in torch run in tiny form without a GPU, and have the sizes that their names state."""

import copy
import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from torch import nn  # noqa: E402

from benchmarks.pytorch import networks  # noqa: E402
from benchmarks.pytorch.networks import Network, UNet, measure  # noqa: E402
from prunecast.hardware import load_gpu  # noqa: E402
from tests.torch.test_network import Mixer, ready  # noqa: E402
from tests.torch.test_network_time import mobilenet  # noqa: E402

GPU = "h200-sxm"
NEW = ("Mistral-7B", "RoBERTa-large, 8 blocks, 16 x 256, padded", "T5-large")


@pytest.fixture
def huggingface():
    """The benchmark, not imported while tests are collected: from the repository's root transformers takes
    the link `kernels` for a package of that name.
    """
    from benchmarks.pytorch import huggingface

    return huggingface


@pytest.fixture
def experts():
    """As `huggingface`."""
    from benchmarks.pytorch import experts

    return experts


@pytest.fixture(autouse=True)
def no_rests(monkeypatch):
    """One turn without rests: times on a CPU mean nothing."""
    monkeypatch.setattr(networks, "REST_S", 0.0)
    monkeypatch.setattr(networks, "TURNS", 1)


def case_of(huggingface, name):
    (found,) = (case for case in huggingface.CASES if case.name.startswith(name))
    return found


@pytest.mark.parametrize(
    ("name", "batch", "tokens", "padding", "sizes"),
    [
        (NEW[0], 2, 2048, "none", (4, 4096, 32, 8, 14336)),
        (NEW[1], 16, 256, "right", (8, 1024, 16, None, 4096)),
        (NEW[2], 8, 512, "none", (8, 1024, 16, None, 4096)),
    ],
)
def test_rows_have_the_sizes_that_their_names_state(huggingface, name, batch, tokens, padding, sizes):
    case = case_of(huggingface, name)
    config = case.config
    assert (case.batch, case.tokens, case.padding) == (batch, tokens, padding)
    feed_forward = getattr(config, "d_ff", None) or config.intermediate_size
    heads, key_heads = config.num_attention_heads, getattr(config, "num_key_value_heads", None)
    found = (config.num_hidden_layers, config.hidden_size, heads, key_heads, feed_forward)
    assert found == sizes


@pytest.mark.parametrize("name", NEW)
def test_a_row_runs_in_tiny_form_and_is_predicted(huggingface, name, capsys):
    row = huggingface.measure(case_of(huggingface, name).tiny(), GPU, 1, "model")
    assert row["refused"] == {}
    assert row["us"].keys() == {"as it comes", "prepared"}
    assert {each.split()[-1] for each in row["us"]["prepared"]} == {"eager", "graph", "compiled"}
    assert 0.0 <= row["error"]["sparse 75%"] < 0.01
    huggingface.show({"rows": [row]})
    assert "not predicted" not in capsys.readouterr().out


def test_an_architecture_without_known_launches_is_not_predicted(huggingface, capsys):
    whole = type(case_of(huggingface, "Whisper").config)(architectures=["WhisperModel"])
    assert huggingface.predicted_us(whole, "prefill:2x16", (0.75,), GPU, "model") == {}
    assert "not predicted: config.json: its model_type is none of" in capsys.readouterr().out


def test_full_sizes_are_predicted_to_gain(huggingface):
    found = huggingface.predicted_us(
        case_of(huggingface, "Mistral").config, "prefill:2x2048", (0.75,), GPU, "model"
    )
    assert found["dense"] > 2.0 * found["sparse 75%"] > 0.0


@pytest.mark.parametrize("batch", [1, 16])
def test_every_way_to_generate_writes_the_same_tokens(huggingface, batch, monkeypatch, capsys):
    # A CPU that is busy with other tests may need as long for one token as for four
    monkeypatch.setattr(
        "benchmarks.pytorch.generate.times_us",
        lambda variants, rounds: {name: float(len(run()[0])) for name, run in variants.items()},
    )
    (case,) = (
        each for each in huggingface.generations(32) if each.batch == batch and each.attention == "prepared"
    )
    assert (case.config.num_hidden_layers, case.config.hidden_size, case.tokens) == (32, 4096, 128)
    row = huggingface.measure_generation(case.tiny(), GPU, 1, "model")
    assert row["refused"] == {}
    assert len(row["equal_tokens"]) == 8
    assert set(row["equal_tokens"].values()) == {1.0}
    assert row["us"].keys() == {"default cache", "static cache", "captured loop"}
    assert all(t == 1.0 for group in row["us"].values() for t in group.values())  # one place a token
    assert row["predicted_us"].keys() == {"dense", "sparse 75%"}
    huggingface.show({"rows": [row]})
    printed = capsys.readouterr().out
    assert f"{1e6 * batch:.0f} {1e6 * batch:.0f} tokens/s 1.00" in printed
    assert "is the limit" not in printed  # a CPU says nothing of a GPU


def test_the_host_is_the_limit_where_the_captured_loop_is_faster(huggingface):
    loop = {"dense loop": 100.0, "sparse 75% loop": 50.0}
    static = {"dense compiled": 104.0, "dense eager": 300.0, "sparse 75% compiled": 80.0}
    lines = huggingface.host_limits(
        {"default cache": {"dense eager": 70.0}, "static cache": static, "captured loop": loop}
    )
    assert [line.split(": ")[0] for line in lines] == [
        "dense, default cache",
        "dense, static cache",
        "sparse 75%, static cache",
    ]
    assert "no limit is shown" in lines[0]
    assert "the GPU is the limit (4%)" in lines[1]
    assert "the host is the limit (38%)" in lines[2]


def test_experts_run_in_tiny_form_and_a_wrong_one_is_noticed(experts, capsys):
    assert experts.check_sparsify(GPU) == []
    for case in experts.TINY:
        row = experts.measure(case, load_gpu(GPU), 1, compiles=False)
        assert (row["wrong"], row["refused"]) == ([], {})
        assert len(row["us"]) == 6
        assert row["predicted_us"]["all"] > 0.0
        experts.show([row])
        assert "wrong experts 0" in capsys.readouterr().out
    made, given = experts.make_experts(case, load_gpu(GPU)), experts.route(case)
    wrong = int(given.chosen[0, 0])
    made.dense.down_proj.data[wrong, 0] += 1.0
    assert experts.wrong_experts(case, made, given)[1] == [wrong]


@pytest.mark.filterwarnings("ignore:.*it is faster dense", "ignore::DeprecationWarning:torch.*")
@pytest.mark.parametrize(
    ("network", "stays_dense"),
    [
        (Network(lambda: UNet((32, 64)), ("down.0.0", "head"), side=32), False),
        (Network(mobilenet, (), side=32), True),
        (Network(lambda: ready(nn.Sequential(nn.Conv2d(3, 8, 1), Mixer())), ("0",), side=16), True),
    ],
)
def test_networks_run_in_tiny_form(network, stays_dense):
    row = measure("tiny", network, 8, GPU, compiles=False)
    assert (row["left_dense"] is not None) == stays_dense
    assert row["layers"] > 0
    assert row["us"].keys() == {"dense eager", "dense graph", "sparse eager", "sparse graph"}
    assert max(row["errors"].values()) < 0.01


@pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU it measures")
def test_full_sizes_need_a_gpu(huggingface, experts, monkeypatch, capsys):
    for benchmark in (huggingface, networks, experts):
        monkeypatch.setattr("sys.argv", ["benchmark"])
        with pytest.raises(SystemExit) as ended:
            benchmark.main()
        assert ended.value.code == 2
        assert "needs a GPU" in capsys.readouterr().err


def test_forms_in_fp8_are_checked_and_dense_fp8_replaces_every_product():
    from benchmarks.pytorch.fp8 import Product, accuracy, check, in_dense_fp8

    found = check(Product(512, 512, 70), bias=True, glu=True, dtype=torch.bfloat16)
    assert found["rms of a tile"] < 0.01
    errors = accuracy(Product(512, 512, 64))
    assert errors["fp8 tiles"] < 1.1 * errors["dense fp8, scale per row"] < 0.05
    torch.manual_seed(0)
    dense = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 32)).bfloat16()
    x = torch.randn(9, 64).bfloat16()
    with torch.no_grad():
        wanted = dense(x)
        for scales in ("row", "tensor"):
            own = in_dense_fp8(copy.deepcopy(dense), scales)
            assert not any(isinstance(module, nn.Linear) for module in own.modules())
            assert (own(x) - wanted).norm() < 0.1 * wanted.norm()


def test_the_record_of_fp8_tiles_is_shown_with_predictions(capsys):
    from benchmarks.pytorch.fp8 import show

    record = Path(__file__).parents[2] / "benchmarks" / "measured" / "h200-sxm-fp8-tiles-2026-11-28.json"
    show(json.loads(record.read_text()))
    shown = capsys.readouterr().out
    assert "4096x11008x2048 75% judge" in shown
    assert "fp8 tiles 1.90 times as fast as dense fp8" in shown

"""Queries, keys and values, gate and up are searched as the launches that torch makes of them."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from prunecast.choice import fastest_plan
from prunecast.codesign import predict
from prunecast.codesign.search import Targets
from prunecast.codesign.search.model_search import ModelSearch
from prunecast.codesign.search.prune_model import PrunedModel, masks_of, search_of
from prunecast.codesign.search.target import prune_to_targets
from prunecast.codesign.search.targets import TargetResult
from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.patterns import TileMap, parse_pattern
from prunecast.plan.tile_rows import stacked_tiles
from prunecast.workload import Engine
from prunecast.workload.graph import model_time

GPU = load_gpu("h200-sxm")
SIZES = {"hidden_size": 384, "num_hidden_layers": 1, "num_attention_heads": 6, "num_key_value_heads": 2}
CONFIG = {"model_type": "llama", **SIZES, "intermediate_size": 1024, "vocab_size": 320}
WORKLOAD = "prefill:32x512"
OPTIONS = {"gpu": "h200-sxm", "engine": "model", "workload": WORKLOAD, "runtime": "torch"}
FAMILIES = ("atp", "guided")
SHAPES = {
    **{f"self_attn.{name}_proj": (384 if name in "qo" else 128, 384) for name in "qkvo"},
    **{"mlp.gate_proj": (1024, 384), "mlp.up_proj": (1024, 384), "mlp.down_proj": (384, 1024)},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose columns and whose matrices are unlike."""
    where, rng = tmp_path_factory.mktemp("model"), np.random.default_rng(0)
    tensors = {
        f"model.layers.0.{name}.weight": (
            rng.standard_normal((m, k)) * np.exp(rng.standard_normal(k)) * np.exp(rng.standard_normal())
        ).astype(np.float16)
        for name, (m, k) in SHAPES.items()
    }
    save_file(tensors, where / "model.safetensors")
    (where / "config.json").write_text(json.dumps(CONFIG))
    return where


@pytest.fixture(scope="module")
def search(folder: Path) -> ModelSearch:
    found = search_of(folder, families=FAMILIES, **OPTIONS)
    found.prepare()
    return found


@pytest.fixture(scope="module")
def result(search: ModelSearch) -> TargetResult:
    return prune_to_targets(search, Targets(latency_share=0.9))


def test_what_is_priced_is_what_sparsify_launches(search: ModelSearch, result: TargetResult) -> None:
    """Slowly and obviously: the map of every matrix, stacked where they are one launch, timed alone."""
    masks, engine = masks_of(search, result), Engine(name="model", gpu=GPU)
    (graph,) = search.workload.graphs
    seconds, sparse = search.dense_seconds(), set()
    every = {name: search.dense_seconds().get(name, 0.0) for name in graph.products}
    for name, product in graph.products.items():
        kept = [masks[n] for n in [each.name for each in product.members] or [name] if n in masks]
        if kept:
            chosen = next(layer for layer in result.layers if layer.layer == name)
            maps = [parse_pattern(chosen.pattern).map(mask) for mask in kept]
            tiles = stacked_tiles([each for each in maps if isinstance(each, TileMap)])
            plan = fastest_plan(chosen.kernel, tiles, product.n, "fp16", GPU)
            every[name] = engine.estimate(plan).seconds
            sparse.add(name)
        elif name not in seconds:
            every[name] = search._fixed[name]
    assert any("+" in name for name in sparse)
    found = model_time(graph, GPU, every, sparse=frozenset(sparse)).seconds
    assert result.seconds == pytest.approx(found, rel=1e-9)
    assert result.seconds <= 0.9 * result.dense_seconds


def test_rows_are_of_matrices_and_add_up_to_their_launch(search: ModelSearch, result: TargetResult) -> None:
    masks = masks_of(search, result)
    rows = {row["layer"]: row for row in result.document()["layers"]}
    assert list(rows) == [name for layer in result.layers for name in layer.names]
    assert {f"model.layers.0.{name}.weight" for name in SHAPES} <= rows.keys()
    for name, row in rows.items():
        assert row["removed"] == pytest.approx(1.0 - masks[name].mean() if name in masks else 0.0)
    assert sum(row["seconds"] for row in rows.values()) == pytest.approx(
        sum(each.seconds for each in result.layers)
    )


def test_tiles_end_where_matrices_end(search: ModelSearch) -> None:
    """Queries have 384 rows: tiles of 256 would hold keys too."""
    joint, heights = next(name for name in search.options if "q_proj" in name), set()
    for option in search.options[joint]:
        heights.add(option.pattern.partition(":")[2].partition("x")[0].partition(":")[0])
    assert heights == {"", "64", "128"}


def test_a_folder_as_torch_runs_it_is_predicted_as_it_was_found(
    folder: Path, search: ModelSearch, tmp_path: Path
) -> None:
    """With tiles of 64 rows, in which `predict` sees zeros."""
    some = {
        name: options.where(options.matching("dense|atp:64.*")) for name, options in search.options.items()
    }
    targets = Targets(latency_share=0.9)
    low = search.with_options(some)
    pruned = PrunedModel.of(low, prune_to_targets(low, targets), targets, tmp_path / "out")
    (tmp_path / "out").mkdir()
    pruned.fill(tmp_path / "out", low, folder, pruned.document())
    (tmp_path / "out" / "config.json").write_text(json.dumps(CONFIG))
    table = predict(tmp_path / "out", pattern="zeros", crossovers=False, **OPTIONS)
    assert table.whole is not None
    assert table.whole.dense.seconds == pytest.approx(pruned.result.dense_seconds)
    assert table.whole.best.seconds == pytest.approx(pruned.result.seconds, rel=1e-6)


def test_a_matrix_with_a_cap_is_a_launch_of_its_own(folder: Path) -> None:
    name = "model.layers.0.self_attn.k_proj.weight"
    found = search_of(folder, families=["atp"], caps={name: 0.25}, **OPTIONS)
    assert name in found.workload.layers
    assert "model.layers.0.self_attn.q_proj+v_proj.weight" in found.workload.layers
    with pytest.raises(BadInput, match="a cap names"):
        search_of(folder, caps={"model.layers.0.k_proj": 0.25}, **OPTIONS).prepare()


def test_a_time_that_dense_meets_leaves_everything_dense(search: ModelSearch) -> None:
    found = prune_to_targets(search, Targets(latency_share=1.0))
    assert {layer.pattern for layer in found.layers} == {"dense"}
    members = [each for layer in found.layers for each in layer.members]
    assert len(members) == len("qkv") + len(("gate", "up"))
    assert {(each.removed, each.retained_importance) for each in members} == {(0.0, 1.0)}
    assert found.seconds == pytest.approx(found.dense_seconds)


@pytest.mark.parametrize("pattern", ["tile-wise:128", "atp:64", "2:4", "tvw:128"])
@pytest.mark.parametrize("tokens", [16, 512, 4096])
def test_one_launch_takes_less_than_its_parts_and_no_less_than_the_slowest(pattern: str, tokens: int) -> None:
    rng, rule, engine = np.random.default_rng(1), parse_pattern(pattern), Engine(name="model", gpu=GPU)
    parts = [rng.random((m, 512), np.float32) for m in (512, 128, 128)]
    masks = [rule.prune({"": part}, None if pattern == "2:4" else 0.6)[""] for part in parts]
    kernel = "2:4" if pattern in ("2:4", "tvw:128") else "small-n" if tokens <= 64 else "stspmm"

    def seconds(mask: np.ndarray) -> float:
        return engine.estimate(fastest_plan(kernel, rule.map(mask), tokens, "fp16", GPU)).seconds

    apart, one = [seconds(mask) for mask in masks], seconds(np.concatenate(masks))
    assert 0.999 * max(apart) <= one < sum(apart)  # kept rows of B are counted in the mean of all tiles

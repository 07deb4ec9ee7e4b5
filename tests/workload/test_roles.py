"""What looks like a weight matrix and is something else: packed, pruned, an expert, a lookup, turned."""

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from prunecast.codesign import predict, prune
from prunecast.codesign.search import Targets, prune_model
from prunecast.errors import BadInput
from prunecast.kernels.device.experts import experts as routed_experts
from prunecast.patterns import parse_pattern
from prunecast.patterns.sources import read_weights
from prunecast.patterns.sources.roles import (
    MOST_EXPERTS,
    ExpertLoader,
    expert_names,
    fused_parts,
    is_lookup,
)
from prunecast.patterns.sources.stored_tensor import StoredTensor
from prunecast.workload.layers import load_layers

RNG = np.random.default_rng(0)
FAST = {"gpu": "h200-sxm", "engine": "model", "crossovers": False}


def normal(*shape, dtype=np.float16):
    return RNG.standard_normal(shape).astype(dtype)


def pruned_2_4(m, k):
    weights = normal(m, k)
    mask = parse_pattern("2:4").prune({"a": np.abs(weights).astype(np.float32)}, None)["a"]
    return np.where(mask, weights, np.float16(0)), mask


def packed(weights, mask, dense=False):
    return {
        "q_proj.compressed": weights[mask] if dense else weights[mask].reshape(len(weights), -1),
        "q_proj.bitmask": np.packbits(mask, axis=1, bitorder="little"),
        "q_proj.shape": np.array(weights.shape),
    }


def test_bitmasks_are_unpacked_and_run_as_they_are(tmp_path):
    weights, mask = pruned_2_4(512, 512)
    save_file(packed(weights, mask), tmp_path / "w.safetensors")
    layers = read_weights(tmp_path / "w.safetensors").layers
    assert list(layers) == ["q_proj.weight"]
    np.testing.assert_array_equal(layers["q_proj.weight"].weights, weights)
    table = predict(tmp_path / "w.safetensors", tokens=512, pattern="zeros", **FAST)
    assert {row.kernel for row in table} >= {"dense", "2:4", "csr"}
    assert {(row.m, row.k) for row in table} == {(512, 512)}


def test_bitmasks_of_any_sparsity(tmp_path):
    weights = np.where(RNG.random((64, 60)) < 0.3, normal(64, 60), np.float16(0))
    save_file(packed(weights, weights != 0, dense=True), tmp_path / "w.safetensors")
    np.testing.assert_array_equal(
        read_weights(tmp_path / "w.safetensors").layers["q_proj.weight"].weights, weights
    )


@pytest.mark.parametrize(
    "change",
    [
        {"q_proj.shape": np.array([512, 512, 1])},
        {"q_proj.shape": np.array([2**40, 2**40])},
        {"q_proj.shape": np.array([-1, 64])},
        {"q_proj.bitmask": np.zeros((64, 8), np.uint8)},
        {"q_proj.bitmask": np.zeros((64, 9), np.uint8)},
        {"q_proj.bitmask": np.zeros((64, 8), np.float16)},
    ],
)
def test_packed_weights_that_do_not_belong_together(tmp_path, change):
    save_file({**packed(*pruned_2_4(64, 64)), **change}, tmp_path / "w.safetensors")
    with pytest.raises(BadInput, match="q_proj"):
        read_weights(tmp_path / "w.safetensors")


def test_scales_of_packed_integers_are_no_layers(tmp_path):
    save_file(
        {
            "a.weight_packed": np.ones((128, 16), np.int32),
            "a.weight_scale": normal(128, 4),
            "b.weight": normal(64, 64),
        },
        tmp_path / "w.safetensors",
    )
    found = read_weights(tmp_path / "w.safetensors")
    assert list(found.layers) == ["b.weight"]
    assert "packed" in found.skipped["a.weight_scale"]


def test_a_part_does_not_look_like_the_whole(run, tmp_path):
    save_file({"a": normal(64, 64), "b": np.ones((512, 512), np.int8)}, tmp_path / "w.safetensors")
    _, out, _ = run("predict", tmp_path / "w.safetensors", "--engine", "model", "--no-crossovers", "-n", "64")
    assert "Only 1 of 2 matrices, 2 % of the weights" in out
    assert "All layers" not in out


def test_experts_are_matrices_with_their_share_of_tokens(tmp_path):
    tensors = {"router.weight": normal(8, 128), "mlp.experts.up_proj": normal(8, 256, 128)}
    save_file(tensors, tmp_path / "w.safetensors")
    table = predict(tmp_path / "w.safetensors", tokens=4096, experts_per_token=2, **FAST)
    tokens = {rows[0].layer: rows[0].n for rows in table.layers()}
    assert tokens == {"router.weight": 4096, **{f"mlp.experts.{e}.up_proj": 1024 for e in range(8)}}
    assert table.coverage == 1.0
    assert {"2 of 8 experts" in row.note for row in table if "experts" in row.layer} == {True}


def test_experts_in_files_of_their_own_share_tokens_too():
    named = {f"layers.{n}.experts.{e}.w1.weight": normal(128, 128) for e in range(4) for n in range(2)}
    layers = load_layers(named).layers.values()
    assert {layer.experts for layer in layers} == {4}
    assert {layer.share_of(4096, 1) for layer in layers} == {1024}
    assert {layer.share_of(1, 2) for layer in layers} == {1}


def test_experts_are_pruned_where_they_lie(tmp_path):
    save_file({"experts.up": normal(4, 128, 128), "router": normal(4, 128)}, tmp_path / "w.safetensors")
    prune(tmp_path / "w.safetensors", pattern="2:4", out=tmp_path / "out", ignore=["router", "experts.0.up"])
    from safetensors.numpy import load_file

    written = load_file(tmp_path / "out" / "weights.safetensors")
    assert [float((matrix == 0).mean()) for matrix in written["experts.up"]] == [0.0, 0.5, 0.5, 0.5]


@pytest.mark.parametrize(
    "name",
    [
        *(
            "model.embed_tokens.weight",
            "transformer.wte.weight",
            "wpe.weight",
            "shared.weight",
            "positions.weight",
        ),
        *(
            "bert.embeddings.word_embeddings.weight",
            "embeddings.position_embeddings.weight",
            "embedding.weight",
        ),
        *("token_embd.weight", "tok_embeddings.weight", "encoder.embed_positions.weight"),
        *("emb.weight", "embed.weight", "tok_emb.weight"),
    ],
)
def test_lookups_are_left_out_unless_named(name):
    assert is_lookup(name)
    named = {name: normal(512, 128), "a.weight": normal(128, 128)}
    loaded = load_layers(named)
    assert list(loaded.layers) == ["a.weight"]
    assert [skipped.layer for skipped in loaded.skipped] == [name]
    assert list(load_layers(named, target=[name]).layers) == [name]
    found = prune_model(named, Targets(latency_share=1.0), gpu="h200-sxm", tokens=64, engine="model")
    assert [layer.layer for layer in found.result.layers] == ["a.weight"]


@pytest.mark.parametrize(
    "name",
    ["lm_head.weight", "patch_embed.proj.weight", "a.q_proj.weight", "embed.fc.weight", "time_emb.weight"],
)
def test_products_are_no_lookups(name):
    assert not is_lookup(name)


def test_conv1d_is_turned_and_written_as_it_was(tmp_path):
    tensors = {
        "h.0.attn.c_attn.weight": normal(64, 192),
        "h.0.attn.c_attn.bias": normal(192),
        "h.0.attn.c_proj.weight": normal(64, 64),
        "h.0.mlp.c_fc.weight": normal(64, 256),
        "other.weight": normal(64, 256),
    }
    save_file(tensors, tmp_path / "w.safetensors")
    layers = read_weights(tmp_path / "w.safetensors").layers
    shapes = {name: layer.weights.shape for name, layer in layers.items()}
    assert shapes["h.0.attn.c_attn.weight"] == (192, 64)
    assert shapes["h.0.mlp.c_fc.weight"] == (256, 64)
    assert shapes["other.weight"] == (64, 256)
    np.testing.assert_array_equal(
        layers["h.0.attn.c_proj.weight"].weights, tensors["h.0.attn.c_proj.weight"].T
    )
    prune(tmp_path / "w.safetensors", pattern="tile-wise:64", sparsity=0.5, out=tmp_path / "out")
    from safetensors.numpy import load_file

    written = load_file(tmp_path / "out" / "weights.safetensors")["h.0.mlp.c_fc.weight"]
    assert written.shape == (64, 256)
    # a tile is 64 outputs, columns of the file, which all keep the same inputs
    kept = written[:, :64] != 0
    assert 0.3 < kept.any(axis=1).mean() < 0.7
    np.testing.assert_array_equal(kept.any(axis=1), kept.all(axis=1))


def test_c_fc_without_conv1d_stays():
    named = {"c_fc.weight": normal(256, 64), "c_fc.bias": normal(256)}
    assert load_layers(named).layers["c_fc.weight"].weights.shape == (256, 64)


def test_pruned_weights_are_said_to_be():
    weights, _ = pruned_2_4(256, 256)
    table = predict({"a": weights}, tokens=64, **FAST)
    assert "50% of these weights are zero already and fit 2:4" in table[0].note
    assert "zero already" not in predict({"a": normal(256, 256)}, tokens=64, **FAST)[0].note


def test_zeros_run_with_every_kernel_that_they_allow():
    rows = {
        row.kernel: row for row in predict({"a": pruned_2_4(256, 256)[0]}, tokens=64, pattern="zeros", **FAST)
    }
    assert rows["2:4"].sparsity == 0.5
    tiled = normal(256, 256)
    tiled[:, ::2] = 0
    rows = {row.kernel: row for row in predict({"a": tiled}, tokens=64, pattern="zeros", **FAST)}
    assert rows["stspmm"].sparsity == 0.5
    assert rows["small-n"].sparsity == 0.5
    table = predict({"a": np.where(RNG.random((256, 256)) < 0.9, normal(256, 256), np.float16(0))}, tokens=64,
                    pattern="zeros", **FAST)  # fmt: skip
    assert "2:4" not in {row.kernel for row in table}


def test_fp32_runs_on_cuda_cores_and_tf32_on_tensor_cores():
    rows = {d: predict({"a": normal(1024, 1024)}, tokens=2048, dtype=d, **FAST) for d in ("fp32", "tf32")}
    assert {row.dtype for row in rows["fp32"]} == {"fp32"}
    assert rows["fp32"][0].seconds > 3 * rows["tf32"][0].seconds
    assert {"dense", "tile-wise", "stspmm", "csr"} <= {row.kernel for row in rows["fp32"]}
    assert "csr" not in {row.kernel for row in rows["tf32"]}


class Tensor:
    """As much of torch's as is asked for; bfloat16 as it is there."""

    def __init__(self, array):
        self.array, self.dtype = array, f"torch.{array.dtype.name}"

    def detach(self):
        return self

    cpu = contiguous = detach

    def __array__(self, dtype=None, copy=None):
        return self.array


class Module:
    def state_dict(self):
        return {"0.weight": Tensor(normal(128, 128)), "0.bias": Tensor(normal(128))}


def test_modules_and_state_dictionaries():
    for source in (Module(), Module().state_dict()):
        assert list(load_layers(source).layers) == ["0.weight"]


def test_torch_itself():
    torch = pytest.importorskip("torch")
    linear = torch.nn.Linear(64, 128).to(torch.bfloat16)
    (layer,) = load_layers(linear).layers.values()
    assert layer.weights.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(layer.weights.astype(np.float32), linear.weight.detach().float().numpy())


@pytest.mark.parametrize(
    ("name", "shape", "note"),
    [
        ("h.0.attn.c_attn.weight", (192, 64), "queries, keys and values in one product, 64 rows each"),
        ("model.layers.0.self_attn.qkv_proj.weight", (96, 64), "queries, keys and values in one product"),
        ("attn.in_proj_weight", (192, 64), "queries, keys and values in one product, 64 rows each"),
        ("blocks.0.attn.qkv.weight", (192, 64), "queries, keys and values in one product, 64 rows each"),
        ("attn.q_proj.weight", (192, 64), None),
    ],
)
def test_fused_projections_are_known_as_three(name, shape, note):
    named = {name: np.ones(shape, np.float16), "other": np.ones((8, 8), np.float16)}
    assert load_layers(named).layers[name].note == note


@pytest.mark.parametrize("pattern", ["tile-wise:64", "unstructured", "atp:64"])
def test_fused_projections_lose_as_much_of_each_part_whatever_their_scales(tmp_path, pattern):
    """Ranked as they lie, values a tenth as large as queries would all be gone."""
    rng = np.random.default_rng(0)
    scales = np.repeat([3.0, 1.0, 0.3], 256)[:, None]
    fused = (scales * rng.standard_normal((768, 256))).astype(np.float16)
    recipe = prune({"attn.qkv.weight": fused}, pattern=pattern, sparsity=0.5, out=tmp_path / "out")
    kept = read_weights(recipe.folder / "weights.safetensors").layers["attn.qkv.weight"].kept
    shares = kept.reshape(3, -1).mean(axis=1)
    assert abs(shares - shares.mean()).max() < 0.06
    apart = prune({"other.weight": fused}, pattern=pattern, sparsity=0.5, out=tmp_path / "apart")
    assert read_weights(apart.folder / "weights.safetensors").layers["other.weight"].kept[512:].mean() < 0.1


def test_a_tensor_of_experts_is_read_once_for_all_and_then_freed():
    whole, reads = normal(3, 4, 5), []

    def load():
        reads.append(whole.copy())
        return reads[-1]

    loader = ExpertLoader(StoredTensor(shape=whole.shape, dtype="float16", load=load))
    for times_read in (1, 2):
        for expert in (2, 0, 1):
            matrix = loader.take(expert)
            assert np.array_equal(matrix, whole[expert])
            assert not np.shares_memory(matrix, reads[-1])
        assert len(reads) == times_read


@pytest.mark.parametrize(
    ("experts", "shape", "dtype", "is_split"),
    [
        (1, (4, 8), "float16", False),
        (2, (4, 8), "float16", True),
        (MOST_EXPERTS, (4, 8), "bfloat16", True),
        (MOST_EXPERTS + 1, (4, 8), "float16", False),
        (4, (8,), "float16", False),
        (4, (4, 8), "uint8", False),
    ],
)
@pytest.mark.parametrize("name", ["mlp.experts.up", "mlp.experts_up_proj"])
def test_a_tensor_of_two_experts_up_to_the_most_is_split(experts, shape, dtype, is_split, name):
    tensor = StoredTensor(shape=(experts, *shape), dtype=dtype, load=lambda: normal(1))
    if name == "mlp.experts.up":
        wanted = [f"mlp.experts.{expert}.up" for expert in range(experts)]
    else:
        wanted = [f"mlp.experts_up_proj.experts.{expert}.weight" for expert in range(experts)]
    assert expert_names(name, tensor) == (wanted if is_split else [])


def test_experts_are_at_most_as_many_as_the_kernels_route():
    assert MOST_EXPERTS == routed_experts.MOST_EXPERTS


@pytest.mark.parametrize(
    ("name", "m", "parts"),
    [
        ("h.0.attn.c_attn.weight", 192, 3),
        ("blocks.0.attn.qkv.weight", 192, 3),
        ("layers.0.self_attn.qkv_proj.weight", 128, 1),
        ("gpt_neox.layers.0.attention.query_key_value.weight", 192, 1),
        ("layers.0.self_attn.q_proj.weight", 192, 1),
    ],
)
def test_only_whole_thirds_are_matrices_of_their_own(name, m, parts):
    assert fused_parts(name, (m, 64)) == parts


def test_both_ends_of_a_gpt_neox_are_told_apart():
    assert is_lookup("gpt_neox.embed_in.weight")
    assert not is_lookup("embed_out.weight")

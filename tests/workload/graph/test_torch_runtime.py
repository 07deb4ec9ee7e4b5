"""Models as torch runs them: launches by hand, and laws of their times."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.workload.graph import ModelGraph, Operation, Pass, load_pass, model_time, transformer_graph
from prunecast.workload.graph.fusions import RESIDUAL_EPILOGUE_ELEMENTS
from prunecast.workload.graph.model_graph import Moved
from prunecast.workload.graph.model_time import lost_epilogues
from prunecast.workload.graph.runtimes import cudnn_seconds, torch_seconds, with_sparse
from prunecast.workload.graph.shapes import Transformer, parse_workload, transformers

GPU = load_gpu("h200-sxm")
SMALL = {"layers": 2, "hidden": 64, "heads": 4, "feed_forward": 128}
LLAMA = Transformer(**SMALL, gated=True, rms_norm=True, rotary=True)
BERT = Transformer(**SMALL, norm_first=False, causal=False)


def torch_form(name: str, shape: Transformer, run: Pass, *, by_matrix: bool = False) -> ModelGraph:
    return transformer_graph(name, shape, run, "torch", by_matrix=by_matrix)


def seconds_of(o: Operation) -> float:
    return torch_seconds(o, GPU)


def kinds(shape: Transformer, run: Pass) -> Counter[str]:
    return Counter(operation.kind for operation in torch_form("x", shape, run))


def test_launches_of_two_blocks_by_hand() -> None:
    # a block: qkv, output, gate and up, down; llama has a norm before each part and one behind the last
    gated = {"input": 1, "gemm": 8, "attention": 2, "rotary": 2, "gated unit": 2, "rms norm": 5}
    assert kinds(LLAMA, Pass(1, 512)) == gated
    assert kinds(LLAMA, Pass(4, 1, 512)) == {**gated, "cache": 2}
    assert kinds(BERT, Pass(8, 128)) == {
        "input": 1,
        "gemm": 8,
        "attention": 2,
        "activation": 2,
        "normalise": 4,
    }


def test_products_of_queries_keys_and_values_and_of_gate_and_up_are_one() -> None:
    products = load_pass("llama-3-8b", Pass(1, 16), "torch").products
    own = [(p.m, p.k) for p in products.values() if p.name.startswith("layer.0.")]
    assert own == [(6144, 4096), (4096, 4096), (2 * 14336, 4096), (4096, 14336)]


@pytest.mark.parametrize("name", ["stable-diffusion-1.5", "mixtral-8x7b", "whisper-tiny", "gemma-2-9b"])
def test_models_without_a_known_form_are_refused(name: str) -> None:
    with pytest.raises(BadInput, match="form in torch is") as error:
        load_pass(name, Pass(1, 16), "torch")
    assert name in str(error.value)


SOUND = Transformer(**SMALL, causal=False, mels=80)
BIASED = Transformer(**SMALL, rms_norm=True, causal=False, position_bias=True)


def test_launches_of_an_encoder_of_sound_by_hand() -> None:
    # two convolutions, then as any encoder; a norm before each part and one behind the last
    found = torch_form("x", SOUND, Pass(4, 1500))
    assert Counter(o.kind for o in found) == {
        **{"input": 1, "convolution": 2, "gemm": 8},
        **{"attention": 2, "activation": 2, "normalise": 5},
    }
    sizes = {o.name: (o.m, o.k, o.n) for o in found if o.kind == "convolution"}  # named as their weights are
    first, second = (SOUND.hidden, 3 * 80, 12000), (SOUND.hidden, 3 * SOUND.hidden, 6000)
    assert sizes == {"conv1": first, "conv2": second}
    assert found["sound"].elements_out == 80 * 12000
    assert found["layer.0.qkv"].n == 6000


def test_only_dense_graphs_after_convolutions_stay_feature_major() -> None:
    dense = torch_form("x", SOUND, Pass(4, 1500))
    sparse = with_sparse(dense, frozenset(dense.products))
    each = SOUND.hidden * 6000
    assert dense["layer.0.attention"].extra_moves == (Moved(copied=8 * each),)  # 3 tensors in, 1 out
    assert sparse["layer.0.attention"].extra_moves == ()
    assert seconds_of(dense["layer.0.norm1"]) > seconds_of(sparse["layer.0.norm1"])
    plain = torch_form("x", replace(SOUND, mels=0), Pass(4, 1500))
    again = with_sparse(plain, frozenset(plain.products))
    names = [name for name in again.graph if name.startswith("layer.")]
    assert [sparse[name] for name in names] == [again[name] for name in names]


def test_a_t5_model_reads_biases_and_searches_its_sums() -> None:
    run = Pass(8, 512)
    found, plain = torch_form("x", BIASED, run), torch_form("x", replace(BIASED, position_bias=False), run)
    bias = found["position_bias"]
    assert bias.elements_out == BIASED.heads * 512 * 512
    assert bias.extra_moves == (Moved(copied=bias.elements_out),)  # those of the second layer
    each = BIASED.hidden * run.columns
    for o in found:
        if o.name == "position_bias":
            continue
        searched = o.name.endswith(("norm1", "norm2"))
        assert o.extra_moves == ((Moved(copied=2 * each), Moved(copied=1)) if searched else ())
        assert o.kind == "attention" or replace(o, extra_moves=()) == plain[o.name]
    attention = found["layer.0.attention"].attention
    assert attention is not None
    assert attention.has_mask


def sparse_net(name: str, *dense: str) -> ModelGraph:
    graph = load_pass(name, Pass(32, 1), "torch")
    return with_sparse(graph, frozenset(graph.products) - {*dense})


def test_sums_and_first_convolution_of_a_resnet_are_in_planes() -> None:
    graph = sparse_net("resnet50", "stem", "classifier")
    kinds = Counter(o.kind for o in graph)
    assert kinds == {"input": 1, "gemm": 54, "relu epilogue": 16, "pool": 2}
    adds = {o.name for o in graph if any(moved.in_l2 for moved in o.extra_moves)}
    last = {f"stage{s + 1}.{b}.conv3" for s, count in enumerate((3, 4, 6, 3)) for b in range(count)}
    assert adds == last - {"stage1.0.conv3"} | {"stage1.0.shortcut"}  # one of two, which have a stride of 1
    assert [o.name for o in graph if any(moved.copied for moved in o.extra_moves)] == ["stem"]


def test_a_dense_convolution_of_cudnn_is_more_than_a_product() -> None:
    dense = load_pass("resnet50", Pass(32, 1), "torch")
    first, wide = dense["stage1.0.conv1"], dense["stage1.0.conv2"]
    assert (first.extra_moves, dense["stage1.0.conv3"].extra_moves) == (
        (Moved(copied=2 * first.elements_out),),
        (),
    )
    assert cudnn_seconds(first, GPU, 1e-5) == 1e-5
    assert cudnn_seconds(wide, GPU, 1e-5) == pytest.approx(6.4e-6 + 0.85e-5)
    assert cudnn_seconds(sparse_net("resnet50")["stage1.0.conv2"], GPU, 1e-5) == 1e-5


def test_an_image_is_its_patches_and_a_token() -> None:
    products = load_pass("vit-large-16", Pass(32, 999), "torch").products
    assert products["layer.0.qkv"].n == 32 * 197


def times(shape: Transformer, run: Pass, sparse: set[str]) -> dict[str, float]:
    graph = torch_form("x", shape, run)
    found = model_time(graph, GPU, dict.fromkeys(graph.products, 1e-6), sparse=frozenset(sparse))
    return {**found.seconds_of, **{f"turn {name}": s for name, s in found.turning_seconds.items()}}


def test_an_activation_is_an_epilogue_only_between_two_sparse_products() -> None:
    run = Pass(16, 128)
    dense = times(BERT, run, set())["layer.0.activation"]
    both = times(BERT, run, {"layer.0.up", "layer.0.down"})
    assert both["layer.0.activation"] < dense
    assert "turn layer.0.activation" not in both
    for alone in ({"layer.0.up"}, {"layer.0.down"}):
        assert times(BERT, run, alone)["layer.0.activation"] == dense
    assert "turn layer.0.activation" in times(BERT, run, {"layer.0.down"})


def test_a_gated_unit_is_one_only_where_gate_and_up_are_one_product() -> None:
    """As two matrices they are pruned one by one, and have other tiles."""
    run, parts = Pass(16, 128), ("qkv", "output", "gate", "up", "down")
    graph = torch_form("x", LLAMA, run, by_matrix=True)
    sparse = frozenset(name for name in graph.products if name.rpartition(".")[2] in parts)
    found = model_time(graph, GPU, dict.fromkeys(graph.products, 1e-6), sparse=sparse)
    dense = model_time(graph, GPU, dict.fromkeys(graph.products, 1e-6), sparse=frozenset())
    assert found.seconds_of["layer.0.gating"] == dense.seconds_of["layer.0.gating"]
    assert "layer.0.gating" in found.turning_seconds
    assert lost_epilogues(graph, GPU) == {}


@pytest.mark.parametrize("batch", [8, 32])
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("dtype", ["bf16", "fp8"])
def test_a_product_that_alone_is_dense_loses_the_epilogue(gated: bool, batch: int, dtype: str) -> None:
    shape = Transformer(
        layers=2, hidden=512, heads=8, feed_forward=2048, gated=gated, rms_norm=gated, rotary=gated
    )
    model, gpu = torch_form("small", shape, Pass(batch, 512)), load_gpu("h200-sxm")
    lost, nothing = lost_epilogues(model, gpu, dtype=dtype), dict.fromkeys(model.products, 0.0)
    for name in model.products:
        every = model_time(model, gpu, nothing, sparse=frozenset(model.products), dtype=dtype)
        fewer = model_time(model, gpu, nothing, sparse=frozenset(model.products) - {name}, dtype=dtype)
        turned = sum(
            own for source, own in every.turning_seconds.items() if source not in fewer.turning_seconds
        )
        assert lost.get(name, 0.0) == pytest.approx(fewer.seconds - every.seconds + turned, abs=1e-12)
    assert set(lost) == {
        f"layer.{n}.{part}"
        for n in (0, 1)
        for part in (
            *(("qkv", "gate_up") if gated else ("up",)),
            "down",
            *(("output",) if batch == 32 else ()),
        )
    }
    assert lost_epilogues(load_pass("bert-base", Pass(8, 512)), gpu) == {}


def quantised(run: Pass, sparse: set[str]) -> dict[str, int]:
    """Return the writers of quantised tensors, with the 16-bit elements that each pass moves."""
    model = with_sparse(torch_form("x", LLAMA, run), frozenset(sparse), dtype="fp8")
    return {
        o.name.removesuffix(" quantised"): o.elements_in + o.elements_out
        for o in model
        if o.kind == "quantise"
    }


def test_passes_quantise_only_what_products_and_attention_wrote() -> None:
    """Norms before dense products, and gated units in kernels of their own, write fp8 themselves; nothing is
    transposed.
    """
    run, parts = Pass(1, 512), ("qkv", "output", "gate_up", "down")
    every = {f"layer.{i}.{name}" for i in range(2) for name in parts}
    attention = {f"layer.{i}.attention": 512 * 64 * 3 // 2 for i in range(2)}
    assert quantised(run, set()) == attention
    assert quantised(run, set()).keys() == attention.keys()
    written = attention | {f"layer.{i}.gating": 512 * 128 * 3 // 2 for i in range(2)}
    found = quantised(run, every)
    norms = {name: size for name, size in found.items() if name not in written}
    assert found == written | norms
    # One kernel reads the sum in 16 bits and writes the norm in fp8
    assert set(norms.values()) <= {512 * 64 * 3 // 2}
    assert quantised(Pass(1, 64), every) == {}, "few tokens run in 16 bits"
    kinds = Counter(o.kind for o in with_sparse(torch_form("x", LLAMA, run), frozenset(every), dtype="fp8"))
    assert "transpose" not in kinds
    assert "transpose epilogue" not in kinds


def test_quantising_is_counted_with_its_bytes_in_torch_only() -> None:
    for features, measured_s in ((4096, 6.55e-6), (11008, 17.9e-6)):
        x = features * 2048
        o = Operation(name="x", kind="quantise", elements_in=x, elements_out=x // 2)
        assert seconds_of(o) == pytest.approx(measured_s, rel=0.03)  # the two that the numbers were fitted to
    for runtime, wanted in (("torch", 2), ("engine", 0)):
        graph = transformer_graph("x", LLAMA, Pass(1, 512), runtime)
        nothing = dict.fromkeys(graph.products, 0.0)
        in_fp8 = model_time(graph, GPU, nothing, dtype="fp8")
        passes = [s for name, s in in_fp8.seconds_of.items() if in_fp8.kind_of[name] == "quantise"]
        assert len(passes) == wanted
        in_bf16 = model_time(graph, GPU, nothing, dtype="bf16")
        assert in_fp8.seconds == pytest.approx(in_bf16.seconds + sum(passes))


def test_one_token_is_not_turned() -> None:
    every = {f"layer.{i}.{name}" for i in range(2) for name in ("qkv", "output", "gate_up", "down")}
    assert not [name for name in times(LLAMA, Pass(1, 1, 9), every) if name.startswith("turn")]
    turned = [name for name in times(LLAMA, Pass(2, 1, 9), every) if name.startswith("turn")]
    assert len(turned) == 2 * 3  # what down reads, the epilogue writes turned


def test_a_large_sum_is_its_products_and_the_norm_reads_one_tensor() -> None:
    run = Pass(1, RESIDUAL_EPILOGUE_ELEMENTS // LLAMA.hidden)
    every = {f"layer.{i}.{name}" for i in range(2) for name in ("qkv", "output", "gate_up", "down")}
    alone, sparse = times(LLAMA, run, set()), times(LLAMA, run, every)
    graph = torch_form("x", LLAMA, run)
    first = seconds_of(graph["norm0"])  # reads and writes a tensor
    for norm in ("layer.0.norm1", "layer.1.norm2"):
        assert alone[norm] > sparse[norm] == pytest.approx(first)
    read_s = 2 * RESIDUAL_EPILOGUE_ELEMENTS / GPU.dram_bytes_per_s
    assert sparse["layer.0.down"] == pytest.approx(alone["layer.0.down"] + read_s)
    few = run._replace(tokens=run.tokens - 1)
    assert times(LLAMA, few, set())["layer.0.norm1"] == times(LLAMA, few, every)["layer.0.norm1"]


def test_a_large_sum_after_a_kernel_that_adds_nothing_stays_in_the_norm() -> None:
    graph = torch_form("x", LLAMA, Pass(1, RESIDUAL_EPILOGUE_ELEMENTS // LLAMA.hidden))
    nothing, every = dict.fromkeys(graph.products, 0.0), frozenset(graph.products)
    dense = model_time(graph, GPU, nothing).seconds_of
    found = model_time(graph, GPU, nothing, sparse=every, unfused=frozenset({"layer.0.down"})).seconds_of
    assert found["layer.0.norm2"] == dense["layer.0.norm2"] > found["layer.0.norm1"]
    assert found["layer.0.down"] == 0.0 < found["layer.0.output"]


def test_norms_of_heads_are_launches_in_torch_and_part_of_attention_in_an_engine() -> None:
    normed = replace(LLAMA, head_norm=True)
    in_torch = torch_form("x", normed, Pass(1, 512))
    assert [o.name for o in in_torch if o.kind == "head norm"] == ["layer.0.head_norm", "layer.1.head_norm"]
    assert seconds_of(in_torch["layer.0.head_norm"]) > 0.0
    engines = [transformer_graph("x", shape, Pass(1, 512)) for shape in (LLAMA, normed)]
    assert [o.name for o in engines[0]] == [o.name for o in engines[1]]


def test_a_relu_between_sparse_products_is_free_and_a_gelu_is_not() -> None:
    every = {f"layer.{i}.{name}" for i in range(2) for name in ("qkv", "output", "up", "down")}
    relu = replace(BERT, relu=True)
    assert times(relu, Pass(8, 128), every)["layer.0.activation"] == 0.0
    assert times(BERT, Pass(8, 128), every)["layer.0.activation"] > 0.0
    apart = [times(shape, Pass(64, 2048), set())["layer.0.activation"] for shape in (relu, BERT)]
    assert 0.0 < apart[0] < apart[1]


def test_a_layer_norm_of_more_features_than_a_block_holds_loops() -> None:
    """1025 features need more than 1025 / 1024 of the time of 1024."""
    held, looped, twice = (
        seconds_of(Operation(name="x", kind="normalise", elements_in=n, elements_out=n, features=features))
        for features in (1024, 1025, 2049)
        for n in (4096 * features,)
    )
    assert looped > 1.5 * held
    assert twice > 1.5 * looped


def test_a_looping_norm_computes_whole_steps_of_2048_features() -> None:
    """One feature more adds little to the time, except the first one of another step."""

    def more_s(features: int) -> float:
        fewer, more = (
            seconds_of(Operation(name="x", kind="normalise", elements_in=n, elements_out=n, features=each))
            for each in (features - 1, features)
            for n in (4096 * each,)
        )
        return more - fewer

    for within in (1026, 2048, 2050, 4096):
        for first in (2049, 4097):
            assert 0.0 < 100 * more_s(within) < more_s(first)


def test_a_decode_with_a_padded_cache_reads_a_mask() -> None:
    plain, padded = (parse_workload(f"decode:16@143{end}")[0] for end in ("", "/padded"))
    shape = transformers()["llama-2-7b"]
    masks = [torch_form("x", shape, run)["layer.0.attention"].attention.has_mask for run in (plain, padded)]
    assert masks == [False, True]


@given(st.integers(1, 64), st.integers(1, 2048), st.booleans(), st.booleans())
def test_more_sequences_take_no_less(batch: int, tokens: int, gated: bool, cached: bool) -> None:
    shape = LLAMA if gated or cached else BERT
    behind = 100 if cached else 0
    for less, more in zip(
        torch_form("x", shape, Pass(batch, tokens, behind)),
        torch_form("x", shape, Pass(batch + 1, tokens, behind)),
        strict=True,
    ):
        if less.kind != "gemm":
            assert 0.0 < seconds_of(less) <= seconds_of(more)


@given(st.integers(1, 4000), st.integers(1, 4000))
def test_a_longer_cache_takes_no_less(one: int, other: int) -> None:
    short, long = (torch_form("x", LLAMA, Pass(4, 1, n)) for n in sorted((one, other)))
    assert seconds_of(short["layer.0.attention"]) <= seconds_of(long["layer.0.attention"])


def test_behind_products_that_gate_nothing_a_gated_unit_stays_a_kernel():
    graph = torch_form("llama-2-7b", transformers()["llama-2-7b"], Pass(1, 2048))
    gpu, seconds = load_gpu("h200-sxm"), dict.fromkeys(graph.products, 1e-4)
    sparse = frozenset(graph.products)
    gated = model_time(graph, gpu, seconds, sparse=sparse).seconds
    apart = model_time(graph, gpu, seconds, sparse=sparse, unfused=sparse).seconds
    assert apart > gated
    bert = torch_form("bert-base", transformers()["bert-base"], Pass(32, 128))
    alike = [
        model_time(bert, gpu, dict.fromkeys(bert.products, 1e-4), sparse=frozenset(bert.products), unfused=no)
        for no in (frozenset(), frozenset(bert.products))
    ]
    assert alike[0].seconds == alike[1].seconds


def test_launches_around_sparse_experts_have_the_times_of_a_layer() -> None:
    """Mixtral's 4096 tokens, to which nothing was fitted: measured from the end of one launch to the next."""
    places, hidden, wide = 8192, 4096, 14336
    moved = {
        "expert sort": (places * hidden, places * hidden, 45.7e-6),
        "expert unit": (2 * places * wide, places * wide, 187.3e-6),
        "expert sum": (places * hidden, 4096 * hidden, 26.6e-6),
    }
    for kind, (read, written, measured_s) in moved.items():
        o = Operation(name="x", kind=kind, elements_in=read, elements_out=written)
        assert seconds_of(o) == pytest.approx(measured_s, rel=0.12)


def test_heads_are_rotated_in_place_after_large_sparse_products_only() -> None:
    run, every = Pass(1, 512), frozenset(f"layer.{i}.qkv" for i in range(2))
    wide = replace(LLAMA, hidden=4096)
    for shape, sparse, wanted in ((LLAMA, every, 0), (wide, frozenset[str](), 0), (wide, every, 2)):
        model = with_sparse(torch_form("x", shape, run), sparse)
        assert [o.kind for o in model].count("rotary in place") == wanted
        assert [o.kind for o in model].count("rotary") == 2 - wanted


def test_heads_in_rows_by_head_are_never_rotated_in_place() -> None:
    """`tests/torch/test_rotary.py` has the same case for the graphs of torch."""
    shape = replace(transformers()["pythia-6.9b"], layers=2)
    graph = torch_form("x", shape, Pass(1, 2048))
    kinds = [o.kind for o in with_sparse(graph, frozenset(graph.products))]
    assert (kinds.count("rotary in place"), kinds.count("rotary")) == (0, 2)

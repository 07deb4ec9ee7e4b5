"""The standard models against the totals that their papers and configurations give."""

from dataclasses import replace

import pytest

from prunecast.errors import BadInput
from prunecast.kernels import ConvShape
from prunecast.workload.graph import WORKLOADS, Pass, load_pass
from prunecast.workload.graph.shapes import transformers
from prunecast.workload.graph.workloads import NoTorchForm, transformer_graph, unfused_transformer

TOTALS = {
    # millions of weights in products, GMAC per image; resnets and VGG-16 without batch norms and biases
    "resnet34": (21.78, 3.66),
    "resnet50": (25.50, 4.09),
    "vgg16": (138.34, 15.47),
}
ENCODER_WEIGHTS = {"bert-small": 12.6, "bert-base": 84.9, "bert-large": 302.0}


@pytest.mark.parametrize("name", TOTALS)
def test_conv_nets_have_the_published_totals(name: str) -> None:
    model = load_pass(name, Pass(1))
    weights, gmac = TOTALS[name]
    assert model.weights / 1e6 == pytest.approx(weights, abs=0.01)
    assert sum(p.m * p.k * p.n * p.runs for p in model.products.values()) / 1e9 == pytest.approx(
        gmac, abs=0.01
    )


@pytest.mark.parametrize("name", ENCODER_WEIGHTS)
def test_encoders_have_the_published_weights(name: str) -> None:
    assert load_pass(name, Pass(8)).weights / 1e6 == pytest.approx(ENCODER_WEIGHTS[name], abs=0.06)


PARAMETERS = {
    # parameters that the checkpoints of tiiuae have, and those of norms and biases, which no product has
    "falcon-7b": (6_921_720_704, (32 + 1) * 2 * 4544),
    "falcon-40b": (41_303_293_952, (60 * 2 + 1) * 2 * 8192),
    "falcon-rw-1b": (1_311_625_216, (24 * 2 + 1) * 2 * 2048 + 24 * (3 + 1 + 4 + 1) * 2048),
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_falcons_have_the_published_parameters(name: str) -> None:
    parameters, others = PARAMETERS[name]
    assert load_pass(name, Pass(1)).weights == parameters - others


OPTS = {
    # parameters that transformers makes for the configurations of facebook, layers and features
    "opt-125m": (125_239_296, 12, 768),
    "opt-350m": (331_196_416, 24, 1024),
    "opt-1.3b": (1_315_758_080, 24, 2048),
    "opt-6.7b": (6_658_473_984, 32, 4096),
}


@pytest.mark.parametrize("name", OPTS)
def test_opts_have_the_published_parameters(name: str) -> None:
    """A layer has biases and norms of 13 times its features; all but 350M have a norm after the layers."""
    parameters, layers, hidden = OPTS[name]
    positions, last = 2050, 0 if name == "opt-350m" else 2
    assert load_pass(name, Pass(1)).weights == parameters - (13 * layers + positions + last) * hidden


NEOXES = {
    # parameters that EleutherAI publishes, without and with both embeddings; layers, features
    "pythia-70m": (18_915_328, 70_426_624, 6, 512),
    "pythia-1b": (805_736_448, 1_011_781_632, 16, 2048),
    "pythia-6.9b": (6_444_163_072, 6_857_302_016, 32, 4096),
    "pythia-12b": (11_327_027_200, 11_846_072_320, 36, 5120),
}


@pytest.mark.parametrize("name", NEOXES)
def test_pythias_have_the_published_parameters(name: str) -> None:
    """A layer has biases and two norms of 13 times its features; a norm follows the layers."""
    inside, all_of_them, layers, hidden = NEOXES[name]
    others = (13 * layers + 2) * hidden
    model = load_pass(name, Pass(1))
    embedding = model["embedding"].m * model["embedding"].k
    assert model.weights + embedding == all_of_them - others
    assert model.weights - model["head"].weights == inside - others


@pytest.mark.parametrize("runtime", ["engine", "torch"])
@pytest.mark.parametrize("run", [Pass(2, 8), Pass(2, 1, 9)])
def test_both_runtimes_run_a_gpt_neox(runtime: str, run: Pass) -> None:
    model = load_pass("pythia-70m", run, runtime)
    parts = {p.removeprefix("layer.0.") for p in model.products if p.startswith("layer.0.")}
    assert parts == {"qkv", "output", "up", "down"}
    norm = model["layer.0.norm2"]
    assert (norm.tensors_in, norm.tensors_out) == (3, 3)
    kinds = {o.kind for o in model}
    assert ("rotary" in kinds, "activation" in kinds) == ((runtime == "torch",) * 2)


def test_an_embedding_of_other_features_is_projected_to_and_from_those_of_the_layers() -> None:
    model = unfused_transformer(
        "x", replace(transformers()["opt-350m"], layers=2), Pass(3, 8, all_logits=False)
    )
    into, out, head = (model[name] for name in ("project_in", "project_out", "head"))
    assert (into.m, into.k, into.n) == (1024, 512, 24)
    assert (out.m, out.k, out.n) == (512, 1024, 24)
    assert (head.m, head.k, head.n) == (50272, 512, 3)
    assert model["embedding"].elements_out == 512 * 24
    assert [o.name for o in model.sources("layer.0.query")] == ["project_in"]
    assert [o.name for o in model.sources("project_out")] == ["layer.1.norm2"]
    assert "norm0" not in model.graph
    plain = unfused_transformer("x", replace(transformers()["opt-125m"], layers=2), Pass(3, 8))
    assert "norm0" in plain.graph
    assert not {"project_in", "project_out"} & plain.products.keys()


@pytest.mark.parametrize("runtime", ["engine", "torch"])
@pytest.mark.parametrize("name", ["opt-125m", "opt-350m"])
@pytest.mark.parametrize("run", [Pass(2, 8), Pass(2, 1, 9)])
def test_both_runtimes_run_an_opt(name: str, runtime: str, run: Pass) -> None:
    model = load_pass(name, run, runtime)
    kinds = {o.kind for o in model}
    assert ("relu" in kinds) == (runtime == "torch")
    parts = {p.removeprefix("layer.0.") for p in model.products if p.startswith("layer.0.")}
    read = {"qkv"} if runtime == "torch" else {"query", "key", "value"}
    assert parts == {*read, "output", "up", "down"}


@pytest.mark.parametrize(("name", "tensors"), [("falcon-7b", (3, 2)), ("falcon-40b", (3, 3))])
def test_parallel_parts_read_one_tensor_and_one_norm_adds_them(name: str, tensors: tuple[int, int]) -> None:
    shape = replace(transformers()[name], layers=2)
    model = unfused_transformer(name, shape, Pass(1, 8))
    for layer, before in ((0, "norm0"), (1, "layer.0.norm2")):
        own = f"layer.{layer}"
        assert [o.name for o in model.sources(f"{own}.qkv")] == [before]
        assert [o.name for o in model.sources(f"{own}.up")] == [before]
        norm = model[f"{own}.norm2"]
        assert (norm.tensors_in, norm.tensors_out) == tensors
        assert [o.name for o in model.sources(norm.name)] == [f"{own}.output", f"{own}.down", before]
    assert "layer.0.norm1" not in model.graph


def test_gpus_add_up_parallel_parts_before_they_combine_them() -> None:
    shape = replace(transformers()["falcon-40b"], layers=1)
    model = transformer_graph("x", shape, Pass(1, 8, gpus=2))
    reduced = [o for o in model if o.kind == "all reduce"]
    assert [o.name for o in reduced] == ["embedding.all_reduce", "layer.0.norm2.sum.all_reduce"]
    assert [o.name for o in model.sources("layer.0.norm2.sum")] == ["layer.0.output", "layer.0.down"]
    assert model["layer.0.norm2"].tensors_in == 2


def test_what_torch_launches_for_shared_keys_is_not_known() -> None:
    with pytest.raises(NoTorchForm, match="shared keys or linear biases"):
        load_pass("tiiuae/falcon-7b-instruct", Pass(1, 8), "torch")


def test_llama_2_7b_has_224_matrices_beside_its_head() -> None:
    products = load_pass("llama-2-7b", Pass(1)).products
    assert len(products) == 224 + 1
    assert sum(p.weights for p in products.values()) == pytest.approx(6.607e9, rel=1e-3)


def test_bert_has_one_product_for_queries_keys_and_values() -> None:
    model = load_pass("bert-base", Pass(8))
    assert len(model.products) == 12 * 4
    assert (model["layer.0.qkv"].m, model["layer.0.qkv"].k) == (3 * 768, 768)
    assert model["layer.0.attention"].elements_in == model["layer.0.qkv"].elements_out


@pytest.mark.parametrize(("name", "tensors"), [("bert-base", 1), ("gpt2", 2)])
def test_the_sum_goes_on_beside_its_norm_only_where_norms_come_first(name: str, tensors: int) -> None:
    model = load_pass(name, Pass(1, 64))
    norm = model["layer.0.norm1"]
    assert norm.elements_out == tensors * 768 * 64
    for _, _, elements in model.graph.out_edges("layer.0.norm1", data="elements"):
        assert elements == 768 * 64


def test_llama_3_shares_keys_among_heads() -> None:
    products = load_pass("llama-3-8b", Pass(1, 16)).products
    assert (products["layer.0.key"].m, products["layer.0.query"].m) == (1024, 4096)


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_product_reads_what_is_written_before_it(name: str) -> None:
    model = load_pass(name, Pass(2, 32))
    seen: set[str] = set()
    for operation in model:
        assert set(model.graph.predecessors(operation.name)) <= seen
        seen.add(operation.name)
        if operation.kind == "gemm" and operation.convolution is not None:
            conv = operation.convolution
            assert (operation.k, operation.n, conv.batch) == (conv.k, conv.n, 2)


@pytest.mark.parametrize(
    ("side", "kernel", "stride", "out"), [(224, 7, 2, 112), (56, 3, 1, 56), (56, 1, 2, 28)]
)
def test_output_sides_of_convolutions(side: int, kernel: int, stride: int, out: int) -> None:
    conv = ConvShape.square(3, side, kernel, stride=stride, batch=1)
    assert (conv.height_out, conv.width_out) == (out, out)


@pytest.mark.parametrize(
    ("name", "changed"), [("bert-huge", {}), ("gpt2", {"batch": 0}), ("gpt2", {"tokens": 0})]
)
def test_bad_input(name: str, changed: dict[str, int]) -> None:
    with pytest.raises(BadInput):
        load_pass(name, Pass(**{"batch": 8, **changed}))


@pytest.mark.parametrize("name", ["gpt2", "llama-3-8b", "falcon-7b", "falcon-40b"])
def test_the_first_norm_reads_the_stream_once_and_writes_what_the_first_layer_reads(name: str) -> None:
    shape = transformers()[name]
    run = Pass(2, 3)
    model = unfused_transformer(name, shape, run)
    norm = model["norm0"]
    (embedding,) = model.sources("norm0")
    assert norm.elements_in == embedding.elements_out == shape.hidden * run.columns
    assert norm.elements_out == norm.tensors_out * norm.elements_in

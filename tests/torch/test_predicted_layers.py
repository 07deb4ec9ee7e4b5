"""Graphs of families against what torch traces: matrices, norms and residual sums of a layer, counted apart.

A tiny model of each family is traced on the CPU with two layers and with one; the difference is a layer.
"""

from collections import Counter

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from functorch.compile import make_boxed_func  # noqa: E402
from torch._dynamo.backends.common import aot_autograd  # noqa: E402

from prunecast.patterns.sources.read import matrix_sizes  # noqa: E402
from prunecast.patterns.sources.roles import is_lookup  # noqa: E402
from prunecast.workload.graph import Pass  # noqa: E402
from prunecast.workload.graph.config import checkpoint_shape, graph_of_tensors  # noqa: E402
from prunecast.workload.graph.fusions import NORMS  # noqa: E402
from prunecast.workload.graph.workloads import unfused_transformer  # noqa: E402
from prunecast.workload.layers import stored_arrays  # noqa: E402
from tests.torch.tiny_models import FORMS, tiny  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

LAYERS = {"gpt2": "n_layer", "WhisperEncoder": "encoder_layers", "T5EncoderModel": "num_layers"}
aten = torch.ops.aten
TOKENS, HIDDEN = 9, 64

MORE_NORMS = {"gemma2": 2, "gemma3_text": 2}
"""Norms of a layer that no graph has: Gemma's after attention and after the feed-forward part.

`not_counted` of the families says so."""

POOLED = ("bert", "roberta", "vit")
"""Encoders with a matrix after the layers, which counts as a product of its own."""


def made(form, layers):
    family, sizes = FORMS[form]
    model = tiny(family, **{LAYERS.get(family, "num_hidden_layers"): layers, **sizes})
    model.config.architectures = [type(model).__name__]
    return model


def given(form):
    if form == "vit":
        return {"pixel_values": torch.randn(1, 3, 224, 224)}
    if form == "WhisperEncoder":
        return {"input_features": torch.randn(1, 16, 40)}
    return {"input_ids": torch.arange(3, 3 + TOKENS)[None]}


@torch.no_grad()
def traced(form, layers):
    """Count the matrices, norms and residual sums of the traced forward of a model."""
    model, found = made(form, layers), Counter()
    options = (
        {} if form in ("vit", "WhisperEncoder", "T5EncoderModel", "t5 with gate") else {"use_cache": False}
    )

    compiled(model, lambda nodes: found.update(counts(nodes)))(**given(form), **options)
    return found


def compiled(model, read):
    """Compile a model on the CPU, and pass each graph that torch makes of it to `read`."""

    def make(graph, _):
        read(graph.graph)
        return make_boxed_func(graph)

    torch._dynamo.reset()
    return torch.compile(model, backend=aot_autograd(fw_compiler=make))


def counts(graph):
    found = Counter()
    for node in graph.nodes:
        value = node.meta.get("val")
        shape = tuple(value.shape) if isinstance(value, torch.Tensor) else ()
        # OPT adds the output of its feed-forward part with all tokens of all sequences in one dimension
        is_stream = shape == (TOKENS, HIDDEN) or (len(shape) == 3 and (shape[0], shape[2]) == (1, HIDDEN))
        if node.target in (aten.mm.default, aten.addmm.default):
            found["matrices"] += 1
        elif node.target is aten.native_layer_norm.default:
            found["norms"] += 1
        elif node.target is aten.rsqrt.default:
            found["norms" if len(shape) == 3 else "head norms"] += 1
        elif node.target is aten.add.Tensor and is_stream and are_tensors(node, shape):
            found["sums"] += 1
    return found


def are_tensors(node, shape):
    """Whether a node adds two tensors that were computed and have the shape of the sum."""
    others = [each for each in node.args if isinstance(each, torch.fx.Node)]
    return len(others) == 2 and all(
        tuple(each.meta["val"].shape) == shape and each.op != "placeholder" for each in others
    )


def predicted(form, layers):
    shape = checkpoint_shape(made(form, layers))
    graph = unfused_transformer("x", shape, Pass(1, TOKENS))
    norms = [o for o in graph if o.kind in NORMS]
    return Counter(
        {
            "matrices": sum(o.kind == "gemm" and ".experts." not in o.name for o in graph),
            "norms": sum(o.tensors_out - (o.tensors_in > 1 and shape.norm_first) for o in norms),
            "head norms": 2 * sum(o.kind == "head norm" for o in graph),
            "sums": sum(o.tensors_in - 1 for o in norms),
        }
    )


@pytest.mark.parametrize("form", FORMS)
def test_a_layer_has_the_matrices_norms_and_sums_that_torch_traces(form):
    wanted = {name: number - traced(form, 1)[name] for name, number in traced(form, 2).items()}
    found = {name: number - predicted(form, 1)[name] for name, number in predicted(form, 2).items()}
    found["norms"] += MORE_NORMS.get(form, 0)
    print(form, wanted, found)
    assert {name: number for name, number in found.items() if number} == {
        n: v for n, v in wanted.items() if v
    }


@pytest.mark.parametrize("form", FORMS)
def test_every_matrix_of_a_family_has_its_name_in_the_graph(form):
    model = made(form, 2)
    shape, stored = checkpoint_shape(model), stored_arrays(model)
    sizes = {name: size for name, size in matrix_sizes(stored).items() if not is_lookup(name)}
    graph = graph_of_tensors("x", shape, Pass(1, TOKENS), sizes)
    assert graph is not None
    alone = [name for name in sizes if name in graph.products and not graph.sources(name)]
    assert [name for name in alone if ".experts." not in name] == ["pooler.dense.weight"] * (form in POOLED)


@pytest.mark.parametrize("form", ["llama", "gpt2", "opt"])
@torch.no_grad()
def test_a_decoding_layer_writes_keys_and_values_to_the_cache_as_torch_does(form):
    model, writes = made(form, 2), Counter()
    cache = transformers.StaticCache(config=model.config, max_cache_len=TOKENS + 1)
    model(**given(form), past_key_values=cache)
    one = torch.tensor([[5]])
    place = {"cache_position": torch.tensor([TOKENS]), "position_ids": torch.tensor([[TOKENS]])}
    compiled(model, lambda nodes: writes.update(node.target for node in nodes.nodes))(
        one, past_key_values=cache, **place
    )
    graph = unfused_transformer("x", checkpoint_shape(model), Pass(1, 1, TOKENS))
    # One write of keys and one of values, which the graph has as one operation
    assert writes[aten.index_copy.default] == 2 * sum(o.kind == "cache" for o in graph) == 4

"""What stands around convolutions in torch: launches by hand, and laws of their times."""

from itertools import product

import pytest

from prunecast.hardware import load_gpu
from prunecast.kernels import ConvShape
from prunecast.workload.graph import ModelGraph, model_time
from prunecast.workload.graph.model_graph import Operation, convolved
from prunecast.workload.graph.model_time import lost_epilogues
from prunecast.workload.graph.rewrites import transpose_for
from prunecast.workload.graph.runtimes import torch_costs, torch_seconds

GPU = load_gpu("h200-sxm")
IMAGES, CHANNELS, SIDE = 64, 32, 14
ELEMENTS = IMAGES * CHANNELS * SIDE**2


def block() -> ModelGraph:
    """A stem, and two convolutions around a shortcut."""
    model = ModelGraph(name="block", runtime="torch")
    conv = ConvShape.square(CHANNELS, SIDE, 3, batch=IMAGES)

    def convolve(name: str, *after: str) -> str:
        return model.add(convolved(name, CHANNELS, conv), after)

    def relu(name: str) -> str:
        o = Operation(name=f"{name}.relu", kind="relu", elements_in=ELEMENTS, elements_out=ELEMENTS)
        return model.add(o, [name])

    x = relu(convolve("stem"))
    inside = convolve("two", relu(convolve("one", x)))
    total = Operation(name="sum", kind="elementwise", elements_in=2 * ELEMENTS, elements_out=ELEMENTS)
    model.add(total, [inside, x])
    return model


def beside_products(*sparse: str) -> dict[str, float]:
    """Launch -> seconds, products apart; `in NAME` for images of NAME that come into planes."""
    model = block()
    found = model_time(model, GPU, dict.fromkeys(model.products, 0.0), sparse=frozenset(sparse))
    return {**found.seconds_of, **{f"in {name}": s for name, s in found.turning_seconds.items()}}


def passed(tensors: float) -> float:
    return GPU.graph_launch_s + tensors * 2 * ELEMENTS / GPU.l2_bytes_per_s


def test_launches_of_a_block_by_hand() -> None:
    relus = {"stem.relu": passed(2), "one.relu": passed(2)}
    start = torch_costs(GPU)["conv_s"]
    dense = {"stem": start, "one": start, "two": start, **relus, "sum": passed(3)}
    assert beside_products() == pytest.approx(dense)
    transpose = transpose_for(block()["stem.relu"], block()["one"])
    turned = torch_seconds(transpose, GPU, GPU.graph_launch_s)
    added = 2 * ELEMENTS / GPU.dram_bytes_per_s + 2 * ELEMENTS / GPU.l2_bytes_per_s
    one_each = ELEMENTS * 30 / GPU.l2_bytes_per_s  # the rest of a sector
    assert beside_products("one", "two") == pytest.approx(
        {
            **dense,
            "one": 0.0,
            "two": added,
            "one.relu": 0.0,
            "sum": 0.0,
            "in stem.relu": turned,
        }
    )
    assert beside_products("two")["sum"] == pytest.approx(passed(3) + one_each)
    assert beside_products("one")["two"] == pytest.approx(added)  # as dense tiles in planes


def test_all_sparse_or_all_dense_take_least_around_equal_products() -> None:
    names = ("stem", "one", "two")
    every = {
        kinds: sum(beside_products(*(n for n, k in zip(names, kinds, strict=True) if k)).values())
        for kinds in product((False, True), repeat=3)
    }
    assert min(every.values()) == pytest.approx(every[True, True, True])


def test_one_dense_convolution_loses_what_the_images_around_it_take_more() -> None:
    inner = frozenset(["one", "two"])
    lost = lost_epilogues(block(), GPU, inner)
    assert lost.keys() == inner
    for name in inner:
        apart = sum(beside_products(*(inner - {name})).values()) - sum(beside_products(*inner).values())
        assert lost[name] == pytest.approx(apart)
    assert lost["one"] > lost["two"] == 0.0  # the second one can be dense in planes
    assert not lost_epilogues(block(), GPU)

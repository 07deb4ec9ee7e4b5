"""What stands around convolutions in torch: launches by hand, and laws of their times."""

from dataclasses import replace
from itertools import product

import pytest

from prunecast.choice import fastest_plan
from prunecast.hardware import load_gpu
from prunecast.kernels import ConvGrid, ConvShape, implicit_plan, plan_dense
from prunecast.models import estimate
from prunecast.patterns import dense_tile_map
from prunecast.workload.graph import ModelGraph, model_time
from prunecast.workload.graph.model_graph import Operation, convolved
from prunecast.workload.graph.model_time import lost_epilogues
from prunecast.workload.graph.runtimes import cudnn_seconds, rewritten, torch_costs

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
    costs = torch_costs(GPU)
    rate = costs["pointwise_share"] * GPU.dram_copy_bytes_per_s
    return costs["gap_s"] + costs["pointwise_s"] + tensors * 2 * ELEMENTS / rate


def test_launches_of_a_block_by_hand() -> None:
    relus = {"stem.relu": passed(2), "one.relu": passed(2)}
    start = torch_costs(GPU)["conv_s"]
    dense = {"stem": start, "one": start, "two": start, **relus, "sum": passed(3)}
    assert beside_products() == pytest.approx(dense)
    added = 2 * ELEMENTS / GPU.dram_bytes_per_s + 2 * ELEMENTS / GPU.l2_bytes_per_s
    into_planes = passed(1 + (SIDE + 1) ** 2 / SIDE**2)
    out_of_planes = passed(4)
    zeros = 2 * ELEMENTS * (SIDE + 1) / SIDE**2 / GPU.dram_bytes_per_s  # a line after each plane
    nothing = {"stem.relu": 0.0, "one": zeros, "one.relu": 0.0, "sum": out_of_planes}
    planes = {**nothing, "stem": into_planes + zeros, "two": added + zeros}
    for sparse in (("one", "two"), ("two",)):  # the others run as dense tiles in planes
        assert beside_products(*sparse) == pytest.approx(planes)
    only_stem = {**dense, "stem": zeros, "stem.relu": 0.0, "one": start + out_of_planes}
    assert beside_products("stem") == pytest.approx(only_stem)


@pytest.mark.parametrize("other", ["first", "second"])
def test_a_second_input_of_a_sum_that_is_not_in_planes_is_copied(other: str) -> None:
    """Whichever operand it is: one sum reads the input of the model, the other one the first convolution."""
    conv = ConvShape.square(CHANNELS, SIDE, 3, batch=IMAGES)

    def last(skip: str) -> float:
        model = ModelGraph(name="sums", runtime="torch")
        for name in ("image", "skip"):
            model.add(Operation(name=name, kind="input", elements_out=ELEMENTS))
        model.add(convolved("one", CHANNELS, conv), ["image"])
        model.add(convolved("two", CHANNELS, conv), ["one"])
        total = Operation(name="sum", kind="elementwise", elements_in=2 * ELEMENTS, elements_out=ELEMENTS)
        model.add(total, [skip, "two"] if other == "first" else ["two", skip])
        zeros = dict.fromkeys(model.products, 0.0)
        return model_time(model, GPU, zeros, sparse=frozenset(zeros)).seconds_of["two"]

    assert last("skip") - last("one") == pytest.approx(passed(2))


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
    assert lost["two"] > lost["one"] == 0.0  # the first one can be dense in planes
    assert not lost_epilogues(block(), GPU)


@pytest.mark.parametrize(("filters", "side"), [(128, 14), (64, 28)])
def test_a_dense_convolution_in_planes_lasts_as_long_as_its_tiles_that_keep_everything(filters, side) -> None:
    conv = ConvShape.square(filters, side, 3, batch=IMAGES)
    grid = ConvGrid.of_network(conv)
    library = implicit_plan(plan_dense(filters, conv.k, grid.conv.n, "fp16", GPU), grid.conv)
    tiles = dense_tile_map(filters, conv.k, filters)
    own = fastest_plan("stspmm", tiles, grid.n, "fp16", GPU, source=grid)
    own_s, library_s = (estimate(plan, GPU).seconds for plan in (own, library))
    images = convolved("conv", filters, conv)
    costs = torch_costs(GPU)
    assert cudnn_seconds(replace(images, layout="features"), GPU, library_s) == pytest.approx(own_s)
    assert cudnn_seconds(images, GPU, library_s) == pytest.approx(
        costs["conv_s"] + costs["conv_share"] * library_s
    )
    for other in (
        replace(images, is_sparse=True),
        convolved("one", filters, ConvShape.square(filters, side, 1, batch=IMAGES)),
    ):
        assert cudnn_seconds(other, GPU, library_s) == library_s


def upsampled(*, with_skip: bool = True) -> ModelGraph:
    """A convolution whose output is upsampled, and concatenated with the image or only read again."""
    model = ModelGraph(name="upsampled")
    model.add(Operation(name="image", kind="input", elements_out=ELEMENTS))
    model.add(convolved("conv", CHANNELS, ConvShape.square(CHANNELS, SIDE, 3, batch=IMAGES)), ["image"])
    larger = Operation(name="up", kind="elementwise", elements_in=ELEMENTS, elements_out=4 * ELEMENTS)
    model.add(larger, ["conv"])
    count = (5 if with_skip else 4) * ELEMENTS
    both = Operation(name="cat", kind="elementwise", elements_in=count, elements_out=count)
    model.add(both, ["up", "image"] if with_skip else ["up"])
    model.add(convolved("next", CHANNELS, ConvShape.square(CHANNELS, 2 * SIDE, 3, batch=IMAGES)), ["cat"])
    return model


def test_upsampling_before_a_concatenation_moves_everything_twice_and_is_copied() -> None:
    graph = rewritten(upsampled(), "torch")
    zeros = dict.fromkeys(graph.products, 0.0)
    dense = model_time(graph, GPU, zeros).seconds_of
    assert dense["up"] == pytest.approx(passed(2 * (1 + 1 + 5)))  # reads x and image, writes both
    assert dense["cat"] == pytest.approx(passed(2 * 5))
    sparse = frozenset(graph.products)
    in_planes = model_time(graph, GPU, zeros, sparse=sparse).seconds_of
    assert in_planes["up"] == pytest.approx(passed(1 + 4))  # on planes neighbours read neighbours
    one = rewritten(upsampled(with_skip=False), "torch")
    alone = model_time(one, GPU, dict.fromkeys(one.products, 0.0)).seconds_of
    assert alone["up"] == pytest.approx(passed(1 + 4))


@pytest.mark.parametrize(
    ("filters", "size", "stride", "side", "images", "measured_us", "error"),
    [
        (64, 3, 1, 224, 32, 205.05, 0.03),
        (64, 3, 1, 256, 8, 69.12, 0.03),
        (16, 3, 2, 224, 32, 21.82, 0.20),
        (64, 7, 2, 224, 32, 59.9, 0.08),
        (64, 7, 2, 224, 128, 205.6, 0.08),
    ],
    ids=["vgg16", "unet", "mobilenet_v3_large", "resnet50", "resnet50:128"],
)
def test_a_convolution_of_images_lasts_as_long_as_the_record_says(
    filters, size, stride, side, images, measured_us, error
) -> None:
    conv = ConvShape(
        channels=3, height=side, width=side, kernel_h=size, kernel_w=size, stride=stride,
        padding=size // 2, batch=images,
    )  # fmt: skip
    o = convolved("first", filters, conv)
    seconds = cudnn_seconds(o, GPU, 1.0)  # whatever a product of that size would need
    assert 1e6 * seconds == pytest.approx(measured_us, rel=error)
    more = convolved("more", filters, replace(conv, channels=4))
    assert cudnn_seconds(more, GPU, 1.0) == seconds  # padded to 8 channels in both

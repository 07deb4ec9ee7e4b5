"""Prepared calls beside first ones: the same result for every layout, whatever changes between two calls.

Kernels are NumPy's here, at the addresses that a GPU would be told.
"""

import ctypes

import numpy as np
import pytest

from prunecast.errors import BadInput
from prunecast.patterns import parse_pattern

torch = pytest.importorskip("torch")

from prunecast.torch import TileSparseLinear, linear, prepared  # noqa: E402
from prunecast.torch.prepared import prepared_call  # noqa: E402

M, K = 96, 64
FP16, LINE = torch.float16, 64


def matrix_at(pointer, row_bytes, rows, columns):
    """Fp16 numbers of the host's memory."""
    memory = (ctypes.c_uint16 * ((rows - 1) * row_bytes // 2 + columns)).from_address(pointer)
    return np.lib.stride_tricks.as_strided(np.frombuffer(memory, np.float16), (rows, columns), (row_bytes, 2))


class HostOperator:
    """What `compile` gives, on the CPU: both ways in, whole rows as kernels have them."""

    def __init__(self, weights, planned):
        self.weights, self.planned, self.enqueued = weights.float().numpy(), planned, []

    def __call__(self, b):
        assert b.shape == (K, self.planned)
        return torch.from_numpy((self.weights @ b.float().numpy()).astype(np.float16))

    def enqueue(self, b, c, stream):
        self.enqueued.append((b, stream))
        with np.errstate(all="ignore"):  # behind the tokens of a row stands anything
            rows = matrix_at(*b, K, self.planned).astype(np.float32)
            matrix_at(*c, M, self.planned)[...] = self.weights @ rows


class HostTranspose:
    """The transposing copy."""

    def __init__(self, x, b, device):
        self.x, self.b = x, b

    def __call__(self, x_pointer, b_pointer, stream):
        x, b = self.x, self.b
        to = matrix_at(b_pointer, b.row_bytes, b.rows, b.columns)
        to[...] = 0
        to[:, : x.rows] = matrix_at(x_pointer, x.row_bytes, x.rows, x.columns).T


@pytest.fixture(autouse=True)
def on_the_host(monkeypatch):
    """The CPU is the device: torch calls its number None."""
    monkeypatch.setattr(prepared, "PreparedTranspose", HostTranspose)
    monkeypatch.setattr(prepared, "current_stream", lambda device: 17)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)
    monkeypatch.setattr(linear, "_has_kernels", lambda x: True)
    monkeypatch.setattr(
        TileSparseLinear, "_compile", lambda self, tokens: HostOperator(self.dense_weight(), tokens)
    )


def module(layout="tokens_first", **options):
    torch.manual_seed(0)
    dense = torch.nn.Linear(K, M, dtype=FP16, bias=False).eval()
    mask = parse_pattern("tile-wise:32").prune({"w": np.random.default_rng(0).random((M, K))}, 0.5)["w"]
    options = {"gpu": "h200-sxm", "max_tokens": 300, "layout": layout, **options}
    return TileSparseLinear.from_linear(dense, mask, pattern="tile-wise:32", **options)


def store(words):
    """So many numbers, the first at a multiple of 16 bytes."""
    memory = torch.randn(words + 8).to(FP16)
    return memory[-memory.data_ptr() // 2 % 8 :][:words]


def strided(shape, strides, words):
    return lambda: store(words).as_strided(shape, strides)


def product(layer, x):
    """Y in fp32."""
    return x.float() @ layer.dense_weight().float().t()


def near(found, wanted):
    """As near as fp16 comes."""
    torch.testing.assert_close(found.float(), wanted, atol=1e-3, rtol=1e-3)


TURNED = {
    "rows": strided((100, K), (K, 1), 100 * K),
    "one row": strided((1, K), (K, 1), K),
    "one row, whatever its stride": strided((1, K), (3, 1), K),
    "three dimensions": strided((2, 50, K), (50 * K, K, 1), 100 * K),
    "a vector": strided((K,), (1,), K),
    "rows apart": strided((33, K), (K + 8, 1), 33 * (K + 8)),
    "one row for all": strided((65, K), (0, 1), K),
}
IN_PLACE = {
    "C of another": strided((128, K), (1, 128), 128 * K),
    "C of another, cut": strided((100, K), (1, 128), 128 * K),
    "C of another, three dimensions": strided((2, 50, K), (50, 1, 128), 128 * K),
    "own rows": strided((104, K), (1, 104), 104 * K),
    "rows apart": strided((104, K), (1, 120), 120 * K),
}
COPIED = {
    "groups of less than 16 bytes": strided((10, K), (K + 3, 1), 10 * (K + 3)),
    "short rows": strided((100, K), (1, 100), 100 * K),
    "tokens and features apart": strided((10, K), (2 * K, 2), 20 * K),
    "rows of whole groups, too short for whole lines": strided((100, K), (1, 104), 104 * K),
    "one token, in a column": strided((1, K), (0, 3), 3 * K),
}
NOT_PREPARED = {
    "dimensions that no view joins": strided((4, 3, K), (K, 5 * K, 1), 15 * K),
    "room for its own rows only": strided((104, K), (1, 128), 63 * 128 + 104),
}


@pytest.mark.parametrize("name", [*TURNED, *IN_PLACE, *COPIED])
def test_a_prepared_call_is_like_the_first(name):
    make, layer = (TURNED | IN_PLACE | COPIED)[name], module()
    layer(make())
    for _ in range(3):
        x = make()
        first, again = module()(x), layer(x)
        assert (again.shape, again.stride()) == (first.shape, first.stride())
        assert torch.equal(again, first)
        near(first, product(layer, x))
    assert len(layer._calls) == 1
    (operator,) = layer._operators.values()
    assert len(operator.enqueued) == 3
    assert {stream for _, stream in operator.enqueued} == {17}


@pytest.mark.parametrize("tokens", [1, 8, 100, 104, 128])
@pytest.mark.parametrize("row", [104, 128, 136])
def test_features_first_is_prepared_too(tokens, row):
    layer, twin = module("features_first"), module("features_first")
    for _ in range(3):
        x = store(K * row).view(K, row)[:, :tokens]
        twin._forget()
        first = twin(x)
        again = layer(x)
        assert torch.equal(again, first)
        assert (again.shape, again.stride()) == (first.shape, first.stride())
    assert len(layer._calls) == 1


@pytest.mark.parametrize("name", IN_PLACE)
def test_what_lies_right_is_read_where_it_lies(name):
    layer = module()
    layer(IN_PLACE[name]())
    x = IN_PLACE[name]()
    layer(x)
    (operator,) = layer._operators.values()
    place, _ = operator.enqueued[-1]
    assert place == (x.data_ptr(), 2 * x.stride(-1))


@pytest.mark.parametrize("name", NOT_PREPARED)
def test_what_another_input_may_do_better_is_not_prepared(name):
    layer = module()
    for _ in range(2):
        x = NOT_PREPARED[name]()
        near(layer(x), product(layer, x))
    assert not layer._calls


def test_an_input_that_begins_elsewhere_or_ends_early_goes_the_long_way():
    layer, calls = module(), []
    for make in (TURNED["rows"], IN_PLACE["C of another, cut"]):
        layer(make())
    layer._first, first = lambda x, key: calls.append(key) or first(x, key), layer._first
    for x in (
        store(101 * K)[1:].as_strided((100, K), (K, 1)),
        store(129 * K)[4:].as_strided((100, K), (1, 128)),
        store(63 * 128 + 100).as_strided((100, K), (1, 128)),
    ):
        near(layer(x), product(layer, x))
    assert len(calls) == 3
    assert set(calls) == set(layer._calls)


def test_what_changes_between_calls_is_refused_as_at_first(monkeypatch):
    layer, x = module(), TURNED["rows"]()
    layer(x)
    for wrong, message in (
        (x[:, 1:], "x must be .* with 64 features"),
        (x[None].expand(4, 100, K), "takes 1 to 300 tokens, got 400"),
        (x.clone().requires_grad_(), "no gradients"),
    ):
        with pytest.raises(BadInput, match=message):
            layer(wrong)
    layer.max_tokens = 99
    with pytest.raises(BadInput, match="takes 1 to 99 tokens, got 100"):
        layer(x)
    with pytest.raises(BadInput, match="no gradients"):
        layer.train()(x)
    monkeypatch.undo()  # devices are looked at again
    for wrong in (x.float(), x.to(torch.bfloat16), x.to("meta")):
        with pytest.raises(BadInput, match=r"x must be torch\.float16 on cpu like the module, got"):
            layer.eval()(wrong)


def test_the_longest_unused_plan_makes_room_under_prepared_calls():
    layer, compiled = module(max_plans=2), []
    compile_one = layer._compile
    layer._compile = lambda tokens: compiled.append(tokens) or compile_one(tokens)
    for tokens in (100, 200, 100, 300, 100, 200, 200):
        x = store(tokens * K).view(tokens, K)
        near(layer(x), product(layer, x))
    assert compiled == [128, 256, 320, 256]
    assert list(layer._operators) == [128, 256]


def test_prepared_calls_are_bounded(monkeypatch):
    monkeypatch.setattr(linear, "MOST_CALLS", 3)
    layer = module()
    for tokens in (1, 2, 3, 4, 4):
        layer(store(tokens * K).view(tokens, K))
    assert [key[0][0] for key in layer._calls] == [2, 3, 4]


@pytest.mark.parametrize("change", ["moved", "loaded"])
def test_nothing_is_kept_where_the_module_changes(change):
    layer, other, x = module(), module(), TURNED["rows"]()
    layer(x)
    other.values *= 2
    if change == "moved":
        layer.to(torch.bfloat16)
    else:
        layer.load_state_dict(other.state_dict())
    assert not layer._calls
    assert not layer._operators
    if change == "loaded":
        near(layer(x), product(other, x))


def test_calls_of_another_device_are_made_there(monkeypatch):
    """The current device is another one than the tensors'."""
    layer, x, entered = module(), TURNED["rows"](), []

    class Device:
        def __init__(self, number):
            self.number = number

        def __enter__(self):
            entered.append(self.number)

        def __exit__(self, *_):
            pass

    y = layer(x)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    monkeypatch.setattr(torch.cuda, "device", Device)
    assert torch.equal(layer(x), y)
    assert entered == [None]


def test_a_call_is_prepared_of_views_only():
    x = TURNED["rows"]()
    b = x.t()
    y = torch.zeros(100, M, dtype=FP16)
    assert prepared_call(x, b, y, 128, LINE) is not None
    assert prepared_call(x, b.clone(), y, 128, LINE) is None

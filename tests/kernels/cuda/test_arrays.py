"""What operators refuse, in numbers and words; none of it needs a GPU."""

import ctypes
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

from prunecast.errors import BadInput
from prunecast.kernels.device import arrays
from prunecast.kernels.device.arrays import OperandSpec, StagingBuffers, check_given, check_weights, multiply
from prunecast.kernels.device.frameworks import Given, _copy_rows, framework_of
from prunecast.plan.misaligned import word_bytes
from tests.kernels.cuda.plans import plan_of, ragged_map

WANTED = OperandSpec(m=48, k=32, n=24, dtype="fp16", device=0)
GIVEN = Given(dtype="float16", shape=(32, 24), strides=(48, 2), device=0, pointer=256, room_bytes=32 * 48)


def test_what_is_wanted_is_taken():
    check_given("B", GIVEN, WANTED, 32)
    check_given("B", GIVEN._replace(strides=(64, 2)), WANTED, 32)  # a part of wider rows


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dtype": "float32"}, "B must be float16, got float32"),
        ({"shape": (32, 16)}, r"B must have shape \(32, 24\), got \(32, 16\)"),
        ({"shape": (32,)}, r"B must have shape \(32, 24\), got \(32,\)"),
        ({"device": 1}, "B must lie on device 0, where the weights are, got device 1"),
        ({"device": -1}, "got the host"),
        ({"strides": (2, 64)}, "row-major without overlaps, got strides of"),
        ({"strides": (0, 2)}, "row-major without overlaps"),
        ({"strides": (48, -2)}, "row-major without overlaps"),
    ],
)
def test_what_is_refused_before_a_launch(change, message):
    with pytest.raises(BadInput, match=message):
        check_given("B", GIVEN._replace(**change), WANTED, 32)


def test_a_single_token_may_have_any_step_between_tokens():
    one = GIVEN._replace(shape=(32, 1), strides=(2, 2))
    check_given("B", one, WANTED._replace(n=1), 32)
    check_given("B", one._replace(strides=(2, 0)), WANTED._replace(n=1), 32)


def test_bf16_is_taken_as_such_and_as_bits():
    wanted = WANTED._replace(dtype="bf16")
    for name in ("bfloat16", "uint16"):
        check_given("B", GIVEN._replace(dtype=name), wanted, 32)
    with pytest.raises(BadInput, match="must be bfloat16 or uint16, got float16"):
        check_given("B", GIVEN, wanted, 32)


@pytest.mark.parametrize(
    ("dtype", "n", "apart"),
    [
        ("fp16", 3, 8),
        ("fp16", 9, 16),
        ("fp16", 25, 32),
        ("fp16", 50, 64),
        ("fp16", 77, 128),
        ("fp32", 25, 32),
    ],
)
def test_rows_of_copies_begin_with_lines_or_share_one(dtype, n, apart):
    assert OperandSpec(m=1, k=1, n=n, dtype=dtype, device=0).copied_n == apart


@pytest.mark.parametrize(("dtype", "align", "padded"), [("fp16", 16, 32), ("fp32", 16, 28), ("fp32", 1, 25)])
def test_rows_are_padded_to_whole_groups(dtype, align, padded):
    assert OperandSpec(m=1, k=1, n=25, dtype=dtype, device=0, align_bytes=align).padded_n == padded


@pytest.mark.parametrize(
    ("tokens", "item_bytes", "width"), [(100, 2, 8), (50, 2, 4), (197, 2, 2), (25, 4, 4), (1000, 2, 8)]
)
def test_rows_are_copied_in_the_widest_words(tokens, item_bytes, width):
    row_bytes = tokens * item_bytes
    assert word_bytes(item_bytes, row_bytes, 512, 256, row_bytes) == width
    assert word_bytes(item_bytes, row_bytes, 512 + item_bytes) == item_bytes


@pytest.mark.parametrize(("tokens", "to_bytes", "of_bytes"), [(24, 64, 48), (12, 40, 24), (3, 10, 6)])
def test_copies_in_words_move_the_rows_and_nothing_around_them(monkeypatch, tokens, to_bytes, of_bytes):
    """Rows of 48, 24 and 6 bytes: in words of 16, 8 and 2. NumPy stands in for CuPy."""

    def rows_at(memory, row_bytes):
        data = SimpleNamespace(ptr=memory.ctypes.data, memory=memory)
        return SimpleNamespace(shape=(5, tokens), itemsize=2, strides=(row_bytes, 2), data=data)

    def from_memory(shape, dtype, data, strides):
        return np.ndarray(shape, dtype, data.memory, 0, strides)

    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(ndarray=from_memory))
    to, of = (
        np.arange(5 * size // 2, dtype=np.uint16) + first for size, first in ((to_bytes, 0), (of_bytes, 1000))
    )
    expected = to.reshape(5, -1).copy()
    expected[:, :tokens] = of.reshape(5, -1)[:, :tokens]
    _copy_rows(rows_at(to, to_bytes), rows_at(of, of_bytes))
    np.testing.assert_array_equal(to.reshape(5, -1), expected)


def test_an_array_of_the_host_is_refused_by_name():
    with pytest.raises(BadInput, match=r"B must be a CuPy array or a torch tensor, got numpy\.ndarray"):
        multiply(WANTED, StagingBuffers(), np.zeros((32, 24), np.float16), None, lambda b, c, stream: None)


def test_weights_and_bias_are_checked():
    plan = plan_of(ragged_map(128), 64, 128, 128)
    good = np.zeros((plan.m, plan.k), np.float32)
    check_weights(plan, good, None)
    with pytest.raises(BadInput, match="weights must have shape"):
        check_weights(plan, good[1:], None)
    with pytest.raises(BadInput, match="bias must have shape"):
        check_weights(plan, good, np.zeros(plan.m + 1, np.float32))
    with pytest.raises(BadInput, match="weights must be floating-point, got int32"):
        check_weights(plan, good.astype(np.int32), None)
    with pytest.raises(BadInput, match="weights must be a NumPy array, got list"):
        check_weights(plan, good.tolist(), None)


def test_tensors_of_the_host_and_of_autograd_are_refused():
    torch = pytest.importorskip("torch")
    b = torch.zeros((32, 24), dtype=torch.float16)
    with pytest.raises(BadInput, match="B must lie on device 0"):
        multiply(WANTED, StagingBuffers(), b, None, lambda b, c, stream: None)
    with pytest.raises(BadInput, match="requires a gradient"):
        multiply(WANTED, StagingBuffers(), b.requires_grad_(), None, lambda b, c, stream: None)
    with pytest.raises(BadInput, match="must be a dense tensor"):
        multiply(WANTED, StagingBuffers(), b.detach().to_sparse(), None, lambda b, c, stream: None)


def matrix_at(place, rows, columns):
    """What lies there, fp16."""
    words = (rows - 1) * place.row_bytes // 2 + columns
    memory = np.frombuffer((ctypes.c_uint16 * words).from_address(place.pointer), np.float16)
    return np.lib.stride_tricks.as_strided(memory, (rows, columns), (place.row_bytes, 2))


class OnTheHost:
    """A framework whose device is the host's memory."""

    name = "host"

    def describe(self, name, array):
        own = array
        while own.base is not None:
            own = own.base
        room = own.nbytes - (array.ctypes.data - own.ctypes.data)
        return Given(array.dtype.name, array.shape, array.strides, 0, array.ctypes.data, room)

    def view(self, array):
        return array

    def empty(self, like, rows, columns):
        memory = np.full(rows * columns + 8, np.nan, like.dtype)  # begins at a multiple of 16 bytes
        first = -memory.ctypes.data // memory.itemsize % 8
        return memory[first : first + rows * columns].reshape(rows, columns)

    def copy(self, to, of):
        to[...] = of

    def stream(self, array):
        return nullcontext()


def test_a_replay_finds_the_copies_where_they_were(monkeypatch):
    """A graph keeps addresses: what it was captured with must not go back to an allocator."""
    monkeypatch.setattr(arrays, "framework_of", lambda name, array: OnTheHost())
    monkeypatch.setattr(arrays, "current_stream", lambda: 0)
    wanted, buffers = WANTED._replace(n=3), StagingBuffers()
    seen = []

    def run(b, c, stream):
        seen.append((b, c))
        matrix_at(c, 48, 3)[...] = matrix_at(b, 32, 3)[0]

    out = np.zeros((48, 3), np.float16)
    for value in (1.0, 2.0):
        b = np.full((32, 3), value, np.float16)
        assert multiply(wanted, buffers, b, out, run) is out
        assert (out == value).all()
    (first_b, first_c), (second_b, second_c) = seen
    assert first_b == second_b
    assert first_c == second_c
    assert not matrix_at(first_b, 32, 8)[:, 3:].any()  # the padding holds numbers
    fresh = [multiply(wanted, buffers, b, None, run) for _ in range(2)]
    assert fresh[0].ctypes.data != fresh[1].ctypes.data  # the caller's own


@pytest.mark.parametrize(
    ("row_bytes", "room_bytes", "pointer", "read_in_place"),
    [
        (16, 32 * 16, 256, True),
        (96, 31 * 96 + 16, 256, True),
        (96, 31 * 96 + 6, 256, False),  # the padding of the last row is not there
        (8, 32 * 16, 256, False),  # rows of four tokens
        (24, 32 * 24, 256, False),
        (16, 32 * 16, 264, False),
    ],
)
def test_padded_rows_are_read_where_they_lie_but_not_written(row_bytes, room_bytes, pointer, read_in_place):
    """Three tokens, of which the kernel reads eight: what is behind a row of C may be somebody else's."""
    given = Given("float16", (32, 3), (row_bytes, 2), 0, pointer, room_bytes)
    wanted = WANTED._replace(n=3)
    assert arrays._may_be_read(given, wanted) == read_in_place
    assert not arrays._may_be_written(given, wanted)


def test_c_of_one_operator_is_b_of_the_next_without_a_copy(monkeypatch):
    monkeypatch.setattr(arrays, "framework_of", lambda name, array: OnTheHost())
    monkeypatch.setattr(arrays, "current_stream", lambda: 0)
    wanted, seen = OperandSpec(m=32, k=32, n=3, dtype="fp16", device=0), []

    def run(b, c, stream):
        seen.append(b)
        matrix_at(c, 32, 3)[...] = matrix_at(b, 32, 3)

    first = multiply(wanted, StagingBuffers(), np.ones((32, 3), np.float16), None, run)
    second = multiply(wanted, StagingBuffers(), first, None, run)
    assert seen[1].pointer == first.ctypes.data
    assert (second == 1).all()


@pytest.mark.parametrize(
    ("dtype", "seen"),
    [("float16", "float16"), ("float32", "float32"), ("bfloat16", "uint16"), ("uint16", "uint16")],
)
def test_a_view_of_a_tensor_has_its_memory_and_bits(dtype, seen, monkeypatch):
    """NumPy stands in for CuPy: both take what DLPack exports."""
    torch = pytest.importorskip("torch")
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(from_dlpack=np.from_dlpack))
    tensor = torch.arange(6).reshape(2, 3).to(getattr(torch, dtype)).requires_grad_(dtype.startswith("f"))
    view = framework_of("B", tensor).view(tensor)
    assert (view.dtype.name, view.shape) == (seen, (2, 3))
    assert view.ctypes.data == tensor.data_ptr()


def test_a_part_of_a_tensor_is_described_in_bytes():
    torch = pytest.importorskip("torch")
    part = torch.zeros(4, 6).half()[1:, 2:]
    found = framework_of("B", part).describe("B", part)
    # It begins 8 elements into an allocation of 24
    assert found == Given("float16", (3, 4), (12, 2), -1, part.data_ptr(), 2 * 24 - 2 * 8)


def test_tensors_that_no_kernel_reads_are_refused():
    torch = pytest.importorskip("torch")
    grows = torch.zeros(2, 2, requires_grad=True)
    adapter = framework_of("B", grows)
    with pytest.raises(BadInput, match="B requires a gradient"):
        adapter.describe("B", grows)
    with torch.no_grad():
        assert adapter.describe("B", grows).dtype == "float32"
    with pytest.raises(BadInput, match=r"B must be a dense tensor, got torch\.sparse_coo"):
        adapter.describe("B", torch.zeros(2, 2).to_sparse())
    with pytest.raises(BadInput, match=r"must be a CuPy array or a torch tensor, got numpy\.ndarray"):
        framework_of("B", np.zeros(2))

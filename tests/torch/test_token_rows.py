"""B in rows that kernels read: in place where it lies so, copied once where it does not."""

import pytest

torch = pytest.importorskip("torch")

from prunecast.torch.prepared import in_rows, padded_tokens, planned_tokens  # noqa: E402


@pytest.mark.parametrize("step", [64, 256, 1024])
def test_padding_is_enough_and_less_than_a_step(step):
    for tokens in range(1, 3000):
        padded = padded_tokens(tokens, step)
        assert tokens <= padded < tokens + step
        assert padded <= max(2 * tokens, 8) or tokens > 64
        assert padded % (step if tokens > 64 else 8) == 0


def rows(features, row, tokens, offset=0):
    store = torch.zeros(features * row + offset, dtype=torch.float16)
    return store[offset:].view(features, row)[:, :tokens]


@pytest.mark.parametrize(
    ("b", "planned"),
    [
        (rows(16, 128, 100), 128),
        (rows(16, 192, 100), 128),
        (rows(16, 104, 104), 104),
        (rows(16, 104, 100), 128),  # rows of whole groups, but too short for whole lines
        (rows(16, 128, 104, offset=8), 128),
        (rows(16, 128, 104, offset=4), 128),  # begins within 16 bytes: copied
        (rows(16, 100, 100), 128),
        (torch.zeros(100, 16, dtype=torch.float16).t(), 128),
        (torch.zeros(16, 1, dtype=torch.float16), 8),
    ],
)
def test_plans_are_of_the_rows_as_they_lie_where_that_is_possible(b, planned):
    assert planned_tokens(b, 64) == planned


def test_the_last_row_must_have_room_too():
    store = torch.zeros(15 * 128 + 100, dtype=torch.float16)
    short = store.as_strided((16, 100), (128, 1))
    found = in_rows(short, 128)
    assert found.shape == (16, 128)
    assert found.data_ptr() != short.data_ptr()


def test_a_copy_has_zeros_behind_its_tokens():
    b = torch.ones(100, 16, dtype=torch.float16).t()
    found = in_rows(b, 128)
    assert found.stride() == (128, 1)
    assert torch.equal(found[:, :100], b)
    assert not found[:, 100:].any()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("tokens", "features", "row"), [(197, 200, 208), (65, 72, 72), (300, 20, 20), (2, 8, 8)]
)
def test_columns_are_turned_on_a_gpu_as_on_the_host(tokens, features, row, dtype):
    x = torch.randn(tokens, row, device="cuda").to(dtype)[:, :features]
    planned = padded_tokens(tokens, 64)
    found = in_rows(x.t(), planned)
    assert found.shape == (features, planned)
    assert torch.equal(found.cpu(), in_rows(x.cpu().t(), planned))

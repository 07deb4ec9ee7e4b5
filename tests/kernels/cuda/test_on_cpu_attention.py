"""Attention with a mask of keys, run as it is on an emulated machine, compared with NumPy's."""

from typing import NamedTuple

import numpy as np
import pytest

from prunecast.kernels.device.attention.attention import (
    AttentionForm,
    AttentionSizes,
    HeadRows,
    attention_launch,
    may_attend,
)
from prunecast.kernels.device.build import SOURCES
from tests.kernels.cuda.on_cpu.mistakes import assert_noticed
from tests.kernels.cuda.on_cpu.on_cpu import UNAVAILABLE, Grid, build_on_cpu, run_on_cpu
from tests.naive.attention import attended

emulated = pytest.mark.skipif(UNAVAILABLE, reason="needs Linux and g++")
FORM = AttentionForm(width=64, is_bf16=False, is_masked=True, columns=False)
SCALE = 0.125


class Operand(NamedTuple):
    array: np.ndarray
    store: np.ndarray


def operands(form, sizes, seed=0):
    """Q, K and V as parts of the rows that one product writes, and NaN around."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    number = np.dtype(ml_dtypes.bfloat16 if form.is_bf16 else np.float16)
    rng = np.random.default_rng(seed)
    arrays = []
    tokens_of = ((sizes.heads, sizes.queries), (sizes.key_heads, sizes.keys), (sizes.key_heads, sizes.keys))
    for heads, tokens in tokens_of:
        features = heads * form.width
        store = np.full(sizes.sequences * tokens * (features + 8) + 8, np.nan, number)
        whole = store[-store.ctypes.data % 16 // 2 :][: store.size - 8]
        rows = whole.reshape(sizes.sequences, tokens, features + 8)[..., :features]
        part = rows.reshape(sizes.sequences, tokens, heads, form.width).swapaxes(1, 2)
        part[:] = rng.standard_normal(part.shape) * (1 if arrays else 3)
        assert np.shares_memory(part, store)
        arrays.append(Operand(part, store))
    return arrays


def run(form, sizes, mask, folder, *, changes=None, landing="oldest", seed=0):
    """The result (sequences, queries, heads, width), and what it should be."""
    given = operands(form, sizes)
    arrays = [each.array for each in given]
    rows = [HeadRows(each.ctypes.data, *each.strides[:3]) for each in arrays]
    launch = attention_launch(form, sizes, SCALE, *rows)
    features, tokens = sizes.heads * form.width, sizes.sequences * sizes.queries
    store = np.full(features * tokens + 16, np.nan, arrays[0].dtype)
    out = store[-store.ctypes.data % 16 // 2 :][: features * tokens]
    bytes_of_mask = np.ascontiguousarray(mask, np.uint8)
    launch.args["out"], launch.args["mask"] = out.ctypes.data, bytes_of_mask.ctypes.data
    source = SOURCES / launch.source
    kernel = build_on_cpu(source, launch.entry, dict(launch.defines), folder, changes=changes)
    grid = Grid(launch.blocks, launch.threads, launch.shared_bytes, landing=landing, seed=seed)
    run_on_cpu(kernel, grid, [launch.args], [*(each.store for each in given), bytes_of_mask, store])
    assert np.isnan(store.astype(np.float32)).sum() == 16, "wrote outside of the result"
    shape = (sizes.sequences, sizes.queries, sizes.heads, form.width)
    found = out.reshape(features, tokens).T.reshape(shape) if form.columns else out.reshape(shape)
    wanted = attended(*arrays, mask if form.is_masked else np.ones_like(mask), SCALE)
    return found.astype(np.float64), wanted


def check(form, sizes, mask, folder, **choices):
    found, wanted = run(form, sizes, mask, folder, **choices)
    step = 2.0**-8 if form.is_bf16 else 2.0**-11
    # Weights and the result are rounded once each; scores are sums of rounded numbers in fp32
    assert np.abs(found - wanted).max() <= 4 * step * max(np.abs(wanted).max(), 1.0), "wrong attention"


def mask_of(sizes, kind):
    """(sequences, keys): as long as the keys, shorter ones on the right or left, holes, nothing."""
    keys = np.arange(sizes.keys)
    lengths = np.linspace(1, sizes.keys, sizes.sequences).astype(int)[:, None]
    return {
        "whole": np.ones((sizes.sequences, sizes.keys), bool),
        "right": keys < lengths,
        "left": keys >= sizes.keys - lengths,
        "holes": np.random.default_rng(1).random((sizes.sequences, sizes.keys)) < 0.3,
        "none": np.zeros((sizes.sequences, sizes.keys), bool),
    }[kind]


@emulated
@pytest.mark.parametrize("kind", ["whole", "right", "left", "holes", "none"])
@pytest.mark.parametrize("columns", [False, True])
def test_any_mask_of_keys(kind, columns, cubins):
    sizes = AttentionSizes(sequences=3, heads=2, key_heads=2, queries=128, keys=200)
    check(FORM._replace(columns=columns), sizes, mask_of(sizes, kind), cubins)


@emulated
@pytest.mark.parametrize(
    ("sizes", "form"),
    [
        (AttentionSizes(2, 4, 2, 72, 72), FORM._replace(columns=True)),
        (AttentionSizes(1, 4, 1, 5, 333), FORM),
        (AttentionSizes(3, 2, 1, 8, 210), FORM._replace(block=64)),
        (AttentionSizes(2, 1, 1, 64, 90), FORM._replace(block=64, columns=True)),
        (AttentionSizes(2, 2, 2, 64, 64), FORM._replace(is_bf16=True)),
        (AttentionSizes(1, 2, 2, 136, 130), FORM._replace(width=128, columns=True, is_bf16=True)),
        (AttentionSizes(1, 1, 1, 197, 197), FORM._replace(width=128, is_masked=False)),
        (AttentionSizes(1, 1, 1, 1, 1), FORM),
    ],
)
def test_other_sizes_and_forms(sizes, form, cubins):
    check(form, sizes, mask_of(sizes, "right"), cubins)


@emulated
@pytest.mark.parametrize("landing", ["newest", "at-once"])
@pytest.mark.parametrize("block", [32, 64])
@pytest.mark.parametrize("kind", ["right", "left"])
def test_copies_may_land_in_any_order(kind, block, landing, cubins):
    sizes = AttentionSizes(2, 1, 1, 64, 300)
    check(FORM._replace(block=block), sizes, mask_of(sizes, kind), cubins, landing=landing, seed=3)


WRONG = {
    "a slot is filled while it is read": (
        {"slot == 0 ? 2 : slot - 1": "slot"},
        "a race|wrong attention",
        "at-once",
    ),
    "copies are not waited for": (
        {"wait_copies<1>();": "wait_copies<3>();"},
        "wrong attention|a race",
        "oldest",
    ),
    "masked keys count": (
        {"if ((own >> (group * 8 + i % 2) & 1) == 0)": "if (false)"},
        "wrong attention",
        "oldest",
    ),
    "sums are not scaled to the new largest score": (
        {"sums.weights[row] *= change;": ";"},
        "wrong attention",
        "oldest",
    ),
}


@emulated
@pytest.mark.parametrize("wrong", WRONG)
def test_a_kernel_that_was_made_wrong_is_found_out(wrong, cubins):
    changes, message, landing = WRONG[wrong]
    sizes = AttentionSizes(2, 1, 1, 64, 300)

    def attempt(seed):
        check(FORM, sizes, mask_of(sizes, "holes"), cubins, changes=changes, landing=landing, seed=seed)

    assert_noticed(attempt, message, range(6))


def test_what_the_kernel_does_not_support_is_not_given_to_it():
    sizes, rows = AttentionSizes(2, 4, 2, 72, 72), HeadRows(1024, 4096, 128, 512)
    assert may_attend(FORM, sizes, rows)
    assert not may_attend(FORM._replace(width=80), sizes, rows)
    assert not may_attend(FORM, sizes._replace(keys=4096), rows)
    assert not may_attend(FORM, sizes._replace(heads=5), rows)
    assert not may_attend(FORM, sizes, rows._replace(head_bytes=72))
    assert may_attend(FORM, sizes._replace(queries=70), rows)
    assert not may_attend(FORM._replace(columns=True), sizes._replace(queries=70), rows)


@pytest.mark.compile
@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize("block", [32, 64])
@pytest.mark.parametrize("columns", [False, True])
def test_it_compiles_without_spills(width, block, columns):
    pytest.importorskip("cuda.bindings.nvrtc")
    form = AttentionForm(width, is_bf16=width == 64, is_masked=True, columns=columns, block=block)
    rows = HeadRows(0, 0, 0, 0)
    launch = attention_launch(form, AttentionSizes(1, 1, 1, 8, 8), SCALE, rows, rows, rows)
    assert launch.build("sm_90a").spill_bytes == 0
    assert launch.build("sm_80").arch == "sm_80"

"""The fit of attention: it finds times that its own formula made, and reads this project's record."""

import csv
import itertools

import numpy as np
import pytest

from benchmarks.published.attention import kernel_of, shape_of, use_of
from benchmarks.published.fit_attention import (
    RANGES,
    costs_from,
    fitted,
    predicted,
    published,
    recorded,
    unseen_ratios,
)
from prunecast.hardware import load_gpu

HEADER = "kind,kernel_source,batch_size,isl,step,num_heads,num_key_value_heads,head_dim,window_size,seconds"


@pytest.fixture
def folder(tmp_path):
    """A table of the H100 whose times are those of the formula with numbers that are not where fits begin."""
    sizes = itertools.product((1, 8, 64), (63, 1023, 16383), ((32, 8), (8, 8), (16, 1)), (64, 128))
    rows = [f"generation,vllm_flash_attn_fa3,{b},1,{s},{h},{k},{d},0,1e-5" for b, s, (h, k), d in sizes]
    path = tmp_path / "attention_bf16_h100.csv"
    path.write_text("\n".join([HEADER, *rows]) + "\n")
    (table,) = published(tmp_path)
    true = {**{name: each.first for name, each in RANGES.items()}, "begin_s": 9e-6, "tile_clk": 4000.0}
    seconds = predicted(table, costs_from(table, np.array(list(true.values()))))
    path.write_text(
        "\n".join([HEADER, *(f"{row.rsplit(',', 1)[0]},{s}" for row, s in zip(rows, seconds, strict=True))])
    )
    return tmp_path


def test_a_fit_finds_the_times_that_its_own_formula_made(folder):
    (table,) = published(folder)
    assert table.name == ("FlashAttention 3", "decode", "h100-sxm")
    found = predicted(table, fitted(table))
    assert found[~table.fit] == pytest.approx(table.measured[~table.fit], rel=0.05)
    ratios = unseen_ratios(table)
    assert ratios.size == table.fit.sum()
    assert ratios == pytest.approx(1.0, rel=0.1)


def test_uses_of_rows_do_not_depend_on_times_or_kernels(folder):
    with (folder / "attention_bf16_h100.csv").open() as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        assert use_of(row) == use_of({**row, "kernel_source": "other", "seconds": "1"})
    assert {use_of(row) for row in rows} == {"fit", "judge"}


def test_a_kernel_that_is_not_named_is_the_engines(folder):
    with (folder / "attention_bf16_h100.csv").open() as file:
        row = next(csv.DictReader(file))
    for source, gpu, kernel in (
        ("vllm_flash_attn_fa3", "h100-sxm", "FlashAttention 3"),
        ("vllm_something_new", "b300", "FlashInfer TRT-LLM"),
        ("vllm_something_new", "rtx-pro-6000", "FlashAttention 2"),
    ):
        named = {**row, "kernel_source": source}
        assert kernel_of(named, shape_of(named), load_gpu(gpu)) == kernel


def test_the_record_of_torch_is_predicted_within_twelve_percent():
    for rows in recorded():
        if rows.group.kernel == "cuDNN":
            seconds = predicted(rows, fitted(rows))
            assert np.abs(seconds / rows.measured - 1.0)[~rows.fit].mean() < 0.12

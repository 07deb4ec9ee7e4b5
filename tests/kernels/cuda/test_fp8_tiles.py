"""The experiment of tiles in fp8: every form compiles, and weights lie where the swizzle has them."""

import numpy as np
import pytest

from benchmarks.kernels.fp8_tiles import COLUMNS, FORMS, Form, kept_runs, packed


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_it_compiles_without_spills(form, tmp_path, monkeypatch):
    monkeypatch.setenv("PRUNECAST_CACHE", str(tmp_path))
    assert form.build().spill_bytes == 0


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_every_byte_of_a_kept_run_lies_in_its_place(form):
    m, k = 2 * form.rows, 512
    weights = np.random.default_rng(0).integers(0, 256, (m, k), np.uint8)
    first = kept_runs(m, k, form, 0.5)
    stages = packed(weights, first, form).reshape(-1, form.rows, form.run)
    width = form.run // 16
    for tile, run in np.ndindex(first.shape):
        own = stages[tile * first.shape[1] + run]
        for row in range(0, form.rows, 7):
            for byte in range(0, form.run, 5):
                chunk = byte // 16 ^ (row * form.run // 128) % width
                source = weights[tile * form.rows + row, first[tile, run] + byte]
                assert own[row, 16 * chunk + byte % 16] == source


@pytest.mark.parametrize("sparsity", [0.0, 0.5, 0.9, 0.999])
def test_tiles_keep_whole_stages_of_different_runs(sparsity):
    form = Form(128, 32)
    first = kept_runs(512, 1024, form, sparsity)
    assert first.shape[1] * form.run % COLUMNS == 0
    assert first.shape[1] >= COLUMNS // form.run
    assert (np.diff(first, axis=1) >= form.run).all()
    assert (first % form.run == 0).all()

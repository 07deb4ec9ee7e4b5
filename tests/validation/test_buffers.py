"""Buffers hold any layer that a suite may name, and those of usual layers are all alike."""

from dataclasses import replace

import pytest

from prunecast.validation.measure.sources import OUTPUT_BYTES, POOL_ELEMENTS, output_bytes, pool_elements
from prunecast.validation.suite import load_suite, suite_names
from tests.validation.tiny_run import CASE


@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
@pytest.mark.parametrize(
    ("m", "k", "n"),
    [(64, 64, 1), (14336, 4096, 16384), (4096, 14336, 16384), (50000, 40000, 1), (1, 1, 2**31 - 1)],
)
def test_a_layer_finds_room(m, k, n, dtype):
    case = replace(CASE, m=m, k=k, n=n, dtype=dtype)
    assert pool_elements(case) // 2 >= max(m * k, k * n)
    assert output_bytes(case) >= m * n * (2 if dtype == "fp16" else 4)


@pytest.mark.parametrize("suite", suite_names())
def test_layers_of_the_bundled_suites_share_their_buffers(suite):
    """So that records of all of them were taken alike."""
    for case in load_suite(suite).cases:
        assert (pool_elements(case), output_bytes(case)) == (POOL_ELEMENTS, OUTPUT_BYTES)

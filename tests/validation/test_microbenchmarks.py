"""Microbenchmarks compile without a GPU: they share headers with the kernels, which change."""

import pytest

from prunecast.kernels.device.build import compile_cubin
from prunecast.kernels.device.form import ARCH
from prunecast.validation.measure.sources import MICROBENCHMARKS, microbenchmark_builds

pytest.importorskip("cuda.bindings.nvrtc")


@pytest.mark.parametrize(("source", "defines"), microbenchmark_builds(), ids=str)
def test_a_microbenchmark_compiles(source, defines, tmp_path, monkeypatch):
    monkeypatch.setenv("PRUNECAST_CACHE", str(tmp_path))
    assert compile_cubin(MICROBENCHMARKS / source, ARCH, defines, allow_spills=True).cubin.exists()


def test_every_source_is_built():
    sources = {path.name for path in MICROBENCHMARKS.glob("*.cu")}
    assert {source for source, _ in microbenchmark_builds()} == sources

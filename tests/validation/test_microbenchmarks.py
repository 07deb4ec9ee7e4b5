"""Microbenchmarks compile without a GPU: they share headers with the kernels, which change."""

import pytest

from prunecast.kernels.device.build import compile_cubin
from prunecast.kernels.device.compile_inputs import ARCH
from prunecast.validation.measure.sources import DEPTHS, MICROBENCHMARKS, ROW_BYTES, WIDTHS

pytest.importorskip("cuda.bindings.nvrtc")


BUILDS = [
    *((source, {}) for source in ("latency.cu", "waiting.cu", "clock_probe.cu", "reuse.cu")),
    *(("bandwidth.cu", {"DEPTH": depth}) for depth in DEPTHS),
    *(("copies.cu", {"ROW_BYTES": width}) for width in ROW_BYTES),
    *(("tensor.cu", {"SPARSE": sparse, "CHAINS": chains}) for sparse in (0, 1) for chains in (1, 8)),
    *(("wgmma.cu", {"WIDTH": width}) for width in WIDTHS),
]


@pytest.mark.parametrize(("source", "defines"), BUILDS, ids=str)
def test_a_microbenchmark_compiles(source, defines, tmp_path, monkeypatch):
    monkeypatch.setenv("PRUNECAST_CACHE", str(tmp_path))
    assert compile_cubin(MICROBENCHMARKS / source, ARCH, defines, allow_spills=True).cubin.exists()


def test_every_source_is_built():
    sources = {path.name for path in MICROBENCHMARKS.glob("*.cu")}
    assert {source for source, _ in BUILDS} == sources

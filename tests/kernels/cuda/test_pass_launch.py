"""Launches of the kernels beside the products, as far as the compiler and the driver see them."""

from types import SimpleNamespace

import numpy as np
import pytest

from prunecast.kernels.device import pass_launch
from prunecast.kernels.device.attention.attention import (
    AttentionForm,
    AttentionSizes,
    HeadRows,
    attention_launch,
)
from prunecast.kernels.device.build import SOURCES
from prunecast.kernels.device.experts.experts import gate_rows, route_tokens
from prunecast.kernels.device.launch import Place
from prunecast.kernels.device.pass_launch import record
from prunecast.kernels.device.planes.planes import Images, Window, between_planes_launch, into_planes_launch
from prunecast.kernels.device.quantise.quantise import quantise_launch
from prunecast.kernels.device.rotary.rotary import rotate_launch
from prunecast.kernels.device.transpose.transpose import Gather, Norm, Rows, transpose_launch
from prunecast.plan.conv_grid import PlaneLayout
from tests.kernels.cuda.fake_driver import install

X, B = Rows(1024, 1536, 197, 768), Rows(4096, 512, 768, 256)
HEADS = HeadRows(1024, 4096, 128, 1024)
LAYOUT = PlaneLayout(64, 14, 15, 1)
IMAGES = Images(1024, (5, 64, 14, 15), (64 * 14 * 15, 1, 64 * 15, 64))
C = {"c": 16, "columns": 32, "row_bytes": 2048, "rows": 192, "most": 1024}
LAUNCHES = {
    "transpose": (transpose_launch(X, B), {}),
    "norm": (
        transpose_launch(X, B, Norm(16, 32, 48, 0, True, True)),
        {"NORMED": 1, "SHIFT": 1, "WEIGHT": 1, "BIAS": 0, "ROUNDS": 1, "BF16": 1},
    ),
    "gather": (transpose_launch(X, B, Gather(16, 32)), {"GATHERED": 1}),
    "quantise": (quantise_launch(Place(16, 1536), 32, 64, 33, 768, "fp16"), {"CHUNKS": 1}),
    "norm and quantise": (
        quantise_launch(Place(16, 10_000), 32, 64, 33, 5000, "bf16", weight=128, epsilon=1e-5),
        {"CHUNKS": 3, "BF16": 1, "NORMED": 1},
    ),
    "rotate": (rotate_launch(Place(16, 512), 33, "fp16", cos=32, sin=48, heads=2, width=64, periods=8), {}),
    "attend": (
        attention_launch(
            AttentionForm(64, False, True, False), AttentionSizes(2, 8, 4, 72, 72), 0.125, *[HEADS] * 3
        ),
        {"WIDTH": 64, "MASKED": 1, "COLUMNS": 0, "KEYS": 32, "HOST_SHARED_BYTES": 33_024},
    ),
    "into planes": (
        into_planes_launch(IMAGES, LAYOUT, 8, 8192, Window(), relu=True),
        {"MODE": 0, "SIZE": 1, "STRIDE": 1, "PADDING": 0, "CHANNELS": 1, "RELU": 1, "BF16": 0},
    ),
    "between planes": (
        between_planes_launch(
            16, LAYOUT, PlaneLayout(64, 7, 7, 1), 8, 32, Window("average", 2, 2), bf16=True
        ),
        {"MODE": 1, "SIZE": 2, "STRIDE": 2, "PADDING": 0, "CHANNELS": 0, "RELU": 0, "BF16": 1},
    ),
    "route": (route_tokens(300, 2, 8, 64, chosen=16)[0], {"THREADS": 1024}),
    "gate": (gate_rows("silu", "bf16", **C), {"THREADS": 256, "ACTIVATION": 3, "BIAS": 0, "BF16": 1}),
}


@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize("name", LAUNCHES)
def test_what_is_compiled_and_launched(name, capability, monkeypatch):
    launch, defines = LAUNCHES[name]
    driver, compiled, loaded = install(monkeypatch, launch.args.nbytes), [], []
    arch = "sm_90a" if capability == 90 else "sm_80"
    monkeypatch.setattr(pass_launch, "capability_of", lambda _: capability)
    monkeypatch.setattr(pass_launch, "arch_of", lambda _: arch)
    monkeypatch.setattr(
        pass_launch, "compile_own", lambda *given: compiled.append(given) or SimpleNamespace(cubin="cubin")
    )
    monkeypatch.setattr(pass_launch, "load_function", lambda *given: loaded.append(given) or 1234)
    launch.enqueue(0, 7)
    [(source, own_arch, macros)] = compiled
    assert f"{launch.entry}(" in (SOURCES / source).read_text()
    assert own_arch == (arch.rstrip("a") if source.startswith("experts") else arch)
    assert dict(macros) == defines
    assert loaded == [("cubin", launch.entry, launch.shared_bytes, 0)]
    [seen] = driver.launched
    assert (seen.function, seen.grid, seen.block) == (1234, (launch.blocks, 1, 1), (launch.threads, 1, 1))
    assert (seen.shared_bytes, seen.stream, seen.overlaps) == (launch.shared_bytes, 7, capability == 90)
    assert seen.arguments == (launch.args.tobytes(),)


def test_a_record_has_zeros_where_nothing_is_given_and_no_other_fields():
    layout = np.dtype([("a", "u8"), ("b", "i4", (2,)), ("c", "i4")])
    made = record(layout, b=(3, 4))
    assert (made["a"].item(), made["b"].tolist(), made["c"].item()) == (0, [[3, 4]], 0)
    with pytest.raises(ValueError, match="fields"):
        record(layout, d=1)

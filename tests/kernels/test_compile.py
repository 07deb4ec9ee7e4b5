"""`compile` finds the kernel of a plan, and says why where it cannot."""

import importlib.util
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace

import numpy as np
import pytest

import prunecast.kernels
from prunecast.choice import fastest_plan
from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.kernels import KERNELS, compile, plan_csr, plan_dense
from prunecast.kernels.device.compiled import compile_plan
from prunecast.patterns.element_map import element_map_from_mask
from prunecast.patterns.tiling import dense_tile_map

H200 = load_gpu("h200-sxm")


@pytest.mark.parametrize(
    "plan",
    [
        plan_dense(256, 256, 64, "fp16", H200),
        plan_csr(element_map_from_mask(np.eye(64, dtype=bool), "unstructured"), 64, "fp32", H200),
    ],
    ids=lambda plan: plan.kernel,
)
def test_library_kernels_are_predicted_only(plan):
    with pytest.raises(BadInput, match=f"no kernel runs plans of {plan.kernel}"):
        compile(plan, np.zeros((plan.m, plan.k), np.float32))


@pytest.mark.skipif(importlib.util.find_spec("cupy") is not None, reason="CuPy is installed")
def test_without_cupy_the_extra_is_named():
    plan = fastest_plan("tile-wise", dense_tile_map(256, 256, 128), 64, "fp16", H200)
    with pytest.raises(BadInput, match="needs CuPy: install the extra cuda13 or cuda12"):
        compile(plan, np.zeros((256, 256), np.float32))


class _AskedOnce:
    """`cupy.cuda.is_available`: False to everybody until the first call has counted the devices."""

    def __init__(self):
        self.known = None

    def __call__(self):
        if self.known is None:
            self.known = False
            time.sleep(0.05)
            self.known = True
        return self.known


def test_threads_that_compile_first_together_all_find_the_gpu(monkeypatch):
    cuda = SimpleNamespace(is_available=_AskedOnce())
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda))
    plan = fastest_plan("tile-wise", dense_tile_map(256, 256, 128), 64, "fp16", H200)
    begin = Barrier(4)

    def refused(_):
        begin.wait()
        with pytest.raises(BadInput) as found:
            compile_plan(SimpleNamespace(name="tiles"), plan, np.zeros((1, 1), np.float32), None)
        return str(found.value)

    with ThreadPoolExecutor(4) as pool:
        reasons = list(pool.map(refused, range(4)))
    assert not [reason for reason in reasons if "GPU" in reason]


def test_every_compiler_lies_where_its_kernel_says():
    """Read as text: importing them needs CuPy."""
    for kernel in KERNELS.values():
        assert bool(kernel.compilers) == bool(kernel.sources) == (not kernel.library and not kernel.parts)
        for entry in kernel.compilers.values():
            spec = importlib.util.find_spec(entry.module)
            assert spec is not None
            assert spec.origin is not None
            assert f"class {entry.name}(" in Path(spec.origin).read_text()


def test_compile_is_public():
    assert prunecast.kernels.compile is compile

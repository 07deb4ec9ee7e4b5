"""What an implicit convolution brings from DRAM in the simulator."""

import numpy as np
import pytest

from prunecast.choice import fastest_plan
from prunecast.hardware import load_gpu
from prunecast.kernels import ConvShape, implicit_plan, plan_dense
from prunecast.patterns import parse_pattern
from prunecast.simulator import simulate

H200, T4 = load_gpu("h200-sxm"), load_gpu("t4")


def runs(gpu, kernel, stride):
    conv = ConvShape(
        channels=64, height=16, width=16, kernel_h=3, kernel_w=3, stride=stride, padding=1, batch=32
    )
    if kernel == "dense":
        plan = plan_dense(128, conv.k, conv.n, "fp16", gpu)
    else:
        pattern = parse_pattern("tile-wise:128" if kernel == "tile-wise" else "unstructured")
        importance = np.random.default_rng(0).random((128, conv.k))
        # Rows of CSR short enough not to be cut: parts would bring their sums as well.
        sparsity = 0.85 if kernel == "csr" else 0.5
        kept = pattern.map(pattern.prune({"w": importance}, sparsity)["w"])
        plan = fastest_plan(kernel, kept, conv.n, "fp16", gpu)
    weights = plan.density * 128 * conv.k * 2
    indices = 0 if kernel == "dense" else 4 * plan.tiles.column_index.size
    fixed = weights + indices + 128 * conv.n * 2
    return simulate(plan, gpu), simulate(implicit_plan(plan, conv), gpu), fixed


@pytest.mark.parametrize("gpu", [H200, T4], ids=lambda gpu: gpu.name)
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("kernel", ["dense", "tile-wise", "csr"])
def test_the_input_comes_once_and_every_row_passes_l2(gpu, kernel, stride):
    product, implicit, fixed = runs(gpu, kernel, stride)
    source = 64 * 16 * 16 * 32 * 2
    assert implicit.l2_bytes == product.l2_bytes
    lists = 0.02 * source  # of items, and where rows of CSR begin: up to 16 KB beside 1 MB
    assert source <= implicit.dram_bytes - fixed <= source + lists
    assert product.dram_bytes > implicit.dram_bytes

"""The rate at which a GPU runs the tensor instructions of a path."""

import pytest

from prunecast.errors import BadInput
from prunecast.plan.tensor_rate import tensor_fma_per_clk
from tests.toy_gpu import toy_gpu


@pytest.mark.parametrize(
    ("dtype", "tensor", "rate"),
    [
        ("fp16", "wgmma", 1024),
        ("bf16", "wgmma", 1024),
        ("tf32", "wgmma", 512),
        ("fp16", "mma", 256),
        ("fp16", "sparse-wgmma", 768),
        ("fp16", "sparse-mma", 192),
    ],
)
def test_each_path_has_its_share_of_the_rate(dtype, tensor, rate):
    gpu = toy_gpu(mma_sync_share=0.25, sparse_tensor_factor=1.5)
    assert tensor_fma_per_clk(gpu, dtype, tensor) == rate


@pytest.mark.parametrize(
    ("capability", "dtype", "tensor", "message"),
    [
        (90, "fp64", "mma", "dtype must be one of fp16, bf16, fp32, tf32, fp8, int8, got 'fp64'"),
        (90, "fp16", "none", "tensor path must be one of"),
        (70, "bf16", "mma", "dtype bf16 needs bf16 tensor cores, toy has none"),
        (75, "tf32", "mma", "dtype tf32 needs tf32 tensor cores, toy has none"),
        (90, "fp32", "mma", "tensor cores do not multiply fp32"),
        (75, "fp16", "sparse-mma", "2:4 needs sparse tensor cores, toy has none"),
        (75, "fp8", "mma", "dtype fp8 needs fp8 tensor cores, toy has none"),
    ],
)
def test_what_a_gpu_cannot_run_is_refused(capability, dtype, tensor, message):
    with pytest.raises(BadInput, match=message):
        tensor_fma_per_clk(toy_gpu(compute_capability=capability), dtype, tensor)

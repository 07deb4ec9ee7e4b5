"""Which spec a device of CUDA is planned for, by the properties that its driver reports."""

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from prunecast.errors import BadInput  # noqa: E402
from prunecast.hardware import gpu_names, load_gpu  # noqa: E402
from prunecast.torch.layer_table import check_gpu, gpu_of  # noqa: E402

CUDA = torch.device("cuda", 0)
REPORTED = {
    # Only PCIe and NVL boards of these two name their form
    "NVIDIA H200": "h200-sxm",
    "NVIDIA H200 NVL": "h200-nvl",
    "NVIDIA H100 80GB HBM3": "h100-sxm",
    "NVIDIA H100 PCIe": "h100-pcie",
    "NVIDIA H100 NVL": "h100-nvl",
    "NVIDIA GH200 480GB": "gh200",
    "NVIDIA A100-SXM4-80GB": "a100-sxm4-80gb",
    "NVIDIA A100-SXM4-40GB": "a100-sxm4-40gb",
    "NVIDIA A100 80GB PCIe": "a100-pcie-80gb",
    "NVIDIA A100-PCIE-40GB": "a100-pcie-40gb",
    "Tesla V100-SXM2-32GB": "v100-sxm2-32gb",
    "Tesla V100-PCIE-16GB": "v100-pcie-16gb",
    "Tesla T4": "t4",
    "NVIDIA L40S": "l40s",
    "NVIDIA RTX 6000 Ada Generation": "rtx-6000-ada",
    "NVIDIA GeForce RTX 4090": "rtx-4090",
}


def report(monkeypatch, name, capability, sms):
    major, minor = divmod(capability, 10)
    found = SimpleNamespace(name=name, major=major, minor=minor, multi_processor_count=sms)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: found)


@pytest.mark.parametrize(("name", "spec"), REPORTED.items())
def test_a_device_has_the_spec_of_its_board(monkeypatch, name, spec):
    gpu = load_gpu(spec)
    report(monkeypatch, name, gpu.compute_capability, gpu.sm_count)
    assert gpu_of(CUDA).name == spec


@pytest.mark.parametrize("name", gpu_names())
def test_a_device_fits_the_plans_for_its_architecture_and_number_of_sms(monkeypatch, name):
    gpu = load_gpu(name)
    report(monkeypatch, gpu.title, gpu.compute_capability, gpu.sm_count)
    check_gpu(CUDA, gpu)
    for capability, sms in ((gpu.compute_capability + 1, gpu.sm_count), (gpu.compute_capability, 1)):
        report(monkeypatch, "another", capability, sms)
        with pytest.raises(
            BadInput, match=rf"planned for {name} with {gpu.sm_count} SMs, cuda:0 is a another"
        ):
            check_gpu(CUDA, gpu)


def test_a_device_without_a_spec_is_named(monkeypatch):
    report(monkeypatch, "NVIDIA H200 MIG 1g.18gb", 90, 16)
    with pytest.raises(
        BadInput, match=r"cuda:0 is a NVIDIA H200 MIG 1g\.18gb, which prunecast has no spec of"
    ):
        gpu_of(CUDA)
    with pytest.raises(BadInput, match="name the GPU to plan for"):
        gpu_of(torch.device("cpu"))

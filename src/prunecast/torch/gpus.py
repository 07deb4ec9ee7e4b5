"""Which GPU a device is: the spec that was planned for, or the one that fits."""

import torch

from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec, gpu_names, load_gpu

__all__ = ["check_gpu", "gpu_of"]


def check_gpu(device: torch.device, gpu: GpuSpec) -> None:
    """Refuse a device that is another GPU than the one planned for, with `BadInput`."""
    found = torch.cuda.get_device_properties(device)
    if (10 * found.major + found.minor, found.multi_processor_count) != (
        gpu.compute_capability,
        gpu.sm_count,
    ):
        raise BadInput(
            f"planned for {gpu.name} with {gpu.sm_count} SMs, {device} is a {found.name} with "
            f"{found.multi_processor_count}"
        )


def gpu_of(device: torch.device) -> GpuSpec:
    """The spec of the GPU that a device is.

    Raises
    ------
    BadInput : it is none, or none that is known
    """
    if device.type != "cuda":
        raise BadInput("the weights lie on a CPU: name the GPU to plan for, gpu=...")
    found = torch.cuda.get_device_properties(device)
    facts = (10 * found.major + found.minor, found.multi_processor_count)
    specs = [load_gpu(name) for name in gpu_names()]
    fitting = [spec for spec in specs if (spec.compute_capability, spec.sm_count) == facts]
    if not fitting:
        raise BadInput(f"{device} is a {found.name}, which prunecast has no spec of: name one, gpu=...")
    return max(fitting, key=lambda spec: sum(word in found.name.lower() for word in spec.name.split("-")))

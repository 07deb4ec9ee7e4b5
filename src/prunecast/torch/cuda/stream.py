"""Torch's current stream of a device, on which all launches are enqueued."""

import torch

from prunecast.kernels.device.pass_launch import PassLaunch


def stream_of(device: int) -> int:
    """Return the handle of torch's current stream on a device."""
    return int(torch._C._cuda_getCurrentRawStream(device))


def is_capturing() -> bool:
    """Return whether the current stream is being captured, during which nothing may be allocated."""
    return bool(torch.cuda.is_current_stream_capturing())


def enqueue(launch: PassLaunch, device: int) -> None:
    """Enqueue a launch on torch's current stream of a device."""
    with torch.cuda.device(device):
        launch.enqueue(device, stream_of(device))

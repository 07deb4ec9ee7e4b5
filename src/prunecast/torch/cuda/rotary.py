"""Launch the kernel that rotates heads in place."""

import torch

from prunecast.kernels.device.launch import Place
from prunecast.kernels.device.rotary.rotary import may_rotate, rotate_launch
from prunecast.torch.cuda.stream import enqueue
from prunecast.torch.layer_table import DTYPES


def rotate_rows(y: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, heads: int) -> bool:
    """Rotate the first `heads` heads of each row of y (tokens, features) in place.

    Return False, and leave y unchanged, if the kernel does not support the tensors.

    Parameters
    ----------
    cos, sin : (periods, width) contiguous; token t uses row t modulo `periods`
    """
    (periods, width), place = cos.shape, Place(y.data_ptr(), y.stride(0) * y.element_size())
    aligned = all(each.data_ptr() % 16 == 0 and each.dtype == y.dtype for each in (cos, sin))
    if y.element_size() != 2 or y.stride(1) != 1 or not (aligned and may_rotate(place, width)):
        return False
    values = {"cos": cos.data_ptr(), "sin": sin.data_ptr(), "heads": heads, "width": width}
    enqueue(rotate_launch(place, len(y), DTYPES[y.dtype], periods=periods, **values), y.device.index)
    return True

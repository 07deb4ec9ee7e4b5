"""Launch the kernel that rotates heads in place."""

import numpy as np
import torch

from prunecast.kernels.device.launch import Place
from prunecast.kernels.device.rotary.rotary import ROTATE_ARGS, may_rotate, rotate_launch
from prunecast.torch.cuda.launches import stream_of
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
    args = np.zeros(1, ROTATE_ARGS)
    args["y"], args["cos"], args["sin"] = y.data_ptr(), cos.data_ptr(), sin.data_ptr()
    args["y_row_bytes"], args["heads"], args["width"], args["periods"] = (
        place.row_bytes,
        heads,
        width,
        periods,
    )
    index = y.device.index
    with torch.cuda.device(index):
        rotate_launch(args, len(y), index, DTYPES[y.dtype])(stream_of(index))
    return True

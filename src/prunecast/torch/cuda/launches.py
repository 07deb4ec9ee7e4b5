"""Launches of layers: operators with the device data of a plan, cached for each planned number of tokens.

The first call plans, compiles and copies data to the GPU, and therefore must not happen during the capture of
a CUDA graph. Cached launches contain no weights: the pointers of weights, x and y are passed at every call.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec
from prunecast.kernels import KERNELS, ConvGrid
from prunecast.kernels.device.compile_inputs import CompileOptions
from prunecast.kernels.device.operator import Call, KernelOperator
from prunecast.plan.misaligned import planned_tokens
from prunecast.torch.cuda.stream import is_capturing, stream_of
from prunecast.torch.cuda.transpose import turn_into
from prunecast.torch.epilogue import Epilogue, LinearCall, PackedLayer, changes_of
from prunecast.torch.layer_plans import conv_plan, plan_for
from prunecast.torch.layer_table import check_gpu, known_layer
from prunecast.torch.weight_layouts import layout_of

GROUP = 8
"""The number of columns of x_t is a multiple of this, or 1."""


class Prepared(NamedTuple):
    """Prepared launch of a product, with the index of the packed weights that its kernel reads."""

    operator: KernelOperator
    image: int
    epilogue: Epilogue
    adds: bool

    def __call__(
        self,
        x_t: torch.Tensor,
        images: list[torch.Tensor],
        bias: torch.Tensor | None,
        y: torch.Tensor,
    ) -> None:
        """Compute y from x_t (K, tokens or more), in the layout of the epilogue; with `adds`, add to the
        values in y.
        """
        device = x_t.device.index
        if torch._C._cuda_getDevice() != device:
            with torch.cuda.device(device):
                self(x_t, images, bias, y)
            return
        if x_t.shape[1] % GROUP and not self.operator.takes_one:
            x_t = torch.nn.functional.pad(x_t, (0, -x_t.shape[1] % GROUP))
        if x_t.shape[1] > 1 and x_t.stride(0) != x_t.shape[1]:
            x_t = x_t.contiguous()
        if x_t.data_ptr() % self.operator.align_bytes(self.operator.plan):
            x_t = x_t.clone()
        columns, c = x_t.shape[1], y
        features_first = self.epilogue.features_first or not self.operator.writes_tokens
        if features_first and (not self.epilogue.features_first or y.shape[1] != columns):
            rows = y.shape[0] if self.epilogue.features_first else y.shape[1]
            c = y.new_empty((rows, columns))
        call = self.call(
            columns, images, bias, rows=c.shape[1], tokens=c.shape[0], features_first=features_first
        )
        self.operator.at(call, x_t.data_ptr(), c.data_ptr(), stream_of(device))
        if c is not y:
            self._write_y(c, y)

    def call(
        self,
        columns: int,
        images: list[torch.Tensor],
        bias: torch.Tensor | None,
        *,
        rows: int,
        tokens: int,
        features_first: bool,
    ) -> Call:
        """Return pointers and sizes of a launch that reads x_t (K, columns) and writes y (tokens, rows).

        With `features_first`, the launch writes the transpose of y, (rows, columns).
        """
        image = images[self.image]
        item = image.element_size()
        biased = 0 if bias is None else bias.data_ptr()
        row_bytes = (columns if features_first else rows) * item
        return Call(
            image.data_ptr(), biased, columns * item, row_bytes, columns, 0 if features_first else tokens
        )

    def _write_y(self, c: torch.Tensor, y: torch.Tensor) -> None:
        """Copy C (rows, columns) to y; with `adds` add it to y, for kernels that cannot add in their
        epilogue.
        """
        if self.epilogue.features_first:
            y.copy_(c[:, : y.shape[1]])
        elif self.adds:
            y.add_(c[:, : y.shape[0]].t())
        else:
            turn_into(c, y)


_PREPARED: dict[Any, Any] = {}
"""Cache of `prepared_once`: key -> launches."""


def prepared_once(
    key: tuple[Any, ...], what: str, device: torch.device, gpu: GpuSpec, prepare: Callable[[], Any]
) -> Any:
    """Return the launches for `key`: call `prepare` at the first request, and cache its result.

    Parameters
    ----------
    key : everything on which the launches depend, and the number of the device
    what : size of the call, for the message
    gpu : the GPU that is planned for

    Raises
    ------
    BadInput : the device is another GPU than the one planned for, or a graph is being captured and there was
        no call before it
    """
    found = _PREPARED.get(key)
    if found is None:
        if is_capturing():
            raise BadInput(f"nothing is prepared for {what}: call the layer once before it is captured")
        check_gpu(device, gpu)
        with torch.cuda.device(device):
            found = _PREPARED[key] = prepare()
    return found


def launch_of(call: LinearCall, *, adds: bool = False) -> Prepared:
    """Return the launch for a call; the first call with its sizes prepares it.

    With `adds`, the launch adds the product to the values in y.

    Raise BadInput if the tokens of x_t are not contiguous, or in the same cases as `prepared_once`.
    """
    if call.x_t.stride(1) != 1 and call.x_t.shape[1] > 1:
        raise BadInput(f"x_t must have its tokens side by side, got strides {call.x_t.stride()}")
    return prepared_launch(call.layer, call.tokens, call.x_t, adds=adds)


def prepared_launch(
    layer: PackedLayer, source: int | ConvGrid, x: torch.Tensor, *, adds: bool = False
) -> Prepared:
    """Return the launch for inputs with the device and dtype of x; the first call prepares it.

    The launch accepts any strides. `source` is a number of tokens, or the convolution whose input is read.
    Raise BadInput in the same cases as `prepared_once`.
    """
    known, epilogue = known_layer(layer.plan, layer.tiles, x.dtype, layer.gpu), layer.epilogue
    planned = planned_tokens(source) if isinstance(source, int) else source
    has_bias, device = layer.bias is not None, x.device.index

    def prepare() -> Prepared:
        layouts = [layout_of(image) for image in layer.images]
        sizes = (known.dtype, known.gpu, layouts)
        if isinstance(planned, int):
            kernel_plan, image = plan_for(known.tiles, planned, *sizes, glu=epilogue.glu)
        else:
            kernel_plan, image = conv_plan(known.tiles, planned, *sizes)
        kind: type[KernelOperator] = KERNELS[kernel_plan.kernel].compilers[kernel_plan.tensor].load()
        changes: dict[str, int] = {}
        if kind.writes_tokens and kernel_plan.source is None:
            changes = changes_of(epilogue, adds=adds)
        elif epilogue.glu:
            raise BadInput(f"{kind.name} has no gated units: sparsify with fuse=False")
        ends: CompileOptions = {"activation": epilogue.activation, "bias": has_bias, "changes": changes}
        operator = kind(kernel_plan, kind.records(kernel_plan), device=device, **ends)
        return Prepared(operator, image, epilogue, adds)

    # The width of the first packed weights distinguishes 2:4 in tiles from plain tiles
    key = (layer.plan, planned, epilogue, has_bias, device, adds, layer.images[0].shape[-1])
    what = f"{source} tokens" if isinstance(source, int) else f"{source.n} pixels"
    found: Prepared = prepared_once(key, what, x.device, known.gpu, prepare)
    return found

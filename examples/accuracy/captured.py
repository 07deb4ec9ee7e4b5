"""Forward and backward of a step as one CUDA graph: small models spend most of a step on launches."""

from __future__ import annotations

from collections.abc import Callable

import torch
from study import Batch
from torch import Tensor, nn

WARM = 3
"""Steps before the capture, in which libraries choose and allocate."""


class CapturedBackward:
    """Leaves the gradients of an objective in the parameters, for batches of one size.

    Capture before hooks watch the parameters: what they did then would be done in every step.
    """

    def __init__(self, objective: Callable[[Batch], Tensor], model: nn.Module, batch: Batch) -> None:
        self._batch = tuple(each.clone() for each in batch)
        self._parameters = [each for each in model.parameters() if each.requires_grad]
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(WARM):
                objective(self._batch).backward()
        torch.cuda.current_stream().wait_stream(aside)
        model.zero_grad()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            objective(self._batch).backward()
        self._gradients = [each.grad for each in self._parameters]

    def __call__(self, batch: Batch) -> None:
        """Gradients of this batch."""
        for own, given in zip(self._batch, batch, strict=True):
            own.copy_(given)
        self._graph.replay()
        for parameter, gradient in zip(self._parameters, self._gradients, strict=True):
            parameter.grad = gradient

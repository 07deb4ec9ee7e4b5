"""The standard models by name."""

from prunecast.codesign.graph.conv_nets import CONV_NETS, build_conv_net
from prunecast.codesign.graph.model_graph import ModelGraph
from prunecast.codesign.graph.transformers import TRANSFORMERS, build_transformer
from prunecast.errors import BadInput, check_choice

WORKLOADS = (*CONV_NETS, *TRANSFORMERS)
"""Names that `load_workload` takes."""
_SEQUENCE = 512


def load_workload(name: str, *, batch: int = 8, sequence: int = _SEQUENCE) -> ModelGraph:
    """One forward pass of a standard model.

    Parameters
    ----------
    name : one of `WORKLOADS`
    batch : images or sequences
    sequence : tokens of each sequence; of no meaning for images

    Raises
    ------
    BadInput : an unknown name, or a number below 1
    """
    check_choice("workload", name, WORKLOADS)
    if batch < 1 or sequence < 1:
        raise BadInput(f"batch and sequence must be at least 1, got {batch} and {sequence}")
    if name in CONV_NETS:
        return build_conv_net(name, CONV_NETS[name], batch=batch)
    return build_transformer(name, TRANSFORMERS[name], batch=batch, sequence=sequence)

"""The standard models by name."""

from prunecast.codesign.graph.image_nets import CONV_NETS, UNETS, build_conv_net, build_unet
from prunecast.codesign.graph.model_graph import ModelGraph
from prunecast.codesign.graph.shapes import SEQUENCE, Pass, transformers
from prunecast.codesign.graph.torch_form import torch_form
from prunecast.codesign.graph.transformers import build_transformer
from prunecast.errors import BadInput, check_choice

WORKLOADS = (*CONV_NETS, *UNETS, *transformers())
"""Names that `load_workload` takes."""
RUNTIMES = ("engine", "torch")
"""What runs a model: operators as inference engines fuse them, around kernels that take features first; or
torch.compile, with the layers that `prunecast.torch.sparsify` makes."""


def load_workload(
    name: str, *, batch: int = 8, sequence: int = SEQUENCE, cached: int = 0, all_logits: bool = True
) -> ModelGraph:
    """One forward pass of a standard model.

    Parameters
    ----------
    name : one of `WORKLOADS`
    batch : images, latents or sequences
    sequence : new tokens of each sequence; of no meaning for images
    cached : tokens of each sequence whose keys and values are read from the cache
    all_logits : the last product is of all tokens, else of one for each sequence

    Raises
    ------
    BadInput : an unknown name, a number out of range, or a cache where no text is generated
    """
    if batch < 1 or sequence < 1 or cached < 0:
        raise BadInput(f"batch and sequence must be at least 1, got {batch} and {sequence}")
    return load_pass(name, Pass(batch, sequence, cached, all_logits))


def load_pass(name: str, run: Pass, runtime: str = "engine") -> ModelGraph:
    """The graph of one forward pass of a standard model.

    Parameters
    ----------
    runtime : one of `RUNTIMES`

    Raises
    ------
    BadInput : as `load_workload`, or a model whose form in torch is not known
    """
    check_choice("workload", name, WORKLOADS)
    check_choice("runtime", runtime, RUNTIMES)
    if runtime == "torch":
        if name not in transformers():
            raise BadInput(f"{name} is no transformer, of which alone the form in torch is known")
        return torch_form(name, transformers()[name], run)
    if name in transformers():
        return build_transformer(name, transformers()[name], run)
    if run.cached:
        raise BadInput(
            f"{name} generates no tokens one by one: wanted batch:B, got {run.label or 'a decode'}"
        )
    if name in UNETS:
        return build_unet(name, UNETS[name], batch=run.batch)
    return build_conv_net(name, CONV_NETS[name], batch=run.batch)

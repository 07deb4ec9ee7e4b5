"""Hugging Face transformers: `quant_method = "prunecast"` in the configuration of a model.

    import prunecast.torch.huggingface             # registers the quantizer
    sparsify_pretrained(model, "tile-wise:128", gpu="h200-sxm", max_tokens=2048)
    model.save_pretrained(folder)                  # dense tensors with zeros, and one block in config.json
    AutoModelForCausalLM.from_pretrained(folder, dtype="auto", device_map="cuda")

A checkpoint keeps its original tensors, so that plain transformers without this package loads it as a dense
model, with one warning about an unknown quantization type. The block is never named `sparsity_config`, which
vLLM refuses.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers.quantizers.auto import register_quantization_config, register_quantizer
from transformers.quantizers.base import HfQuantizer
from transformers.utils.quantization_config import QuantizationConfigMixin

from prunecast.codesign.recipe import Recipe, read_recipe
from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec
from prunecast.torch.convert import Sparsified, sparsify
from prunecast.torch.layer_table import gpu_of

METHOD = "prunecast"


@register_quantization_config(METHOD)
class PrunecastConfig(QuantizationConfigMixin):  # type: ignore[misc]
    """The configuration of a pruned model.

    Parameters
    ----------
    pattern : of layers that name none, e.g. `tile-wise:128`
    gpu : name of the GPU to plan for; None for the GPU that holds the weights
    max_tokens : most tokens of one call
    layers : module -> its pattern and sparsity; empty for every linear layer whose zeros follow the pattern
    few_tokens : also pack the weights for calls of up to 64 tokens
    """

    def __init__(
        self,
        pattern: str = "tile-wise:128",
        gpu: str | None = None,
        max_tokens: int = 2048,
        layers: Mapping[str, Mapping[str, Any]] | None = None,
        few_tokens: bool = True,
        **others: Any,
    ) -> None:
        self.quant_method = METHOD
        self.pattern, self.gpu, self.max_tokens = pattern, gpu, max_tokens
        self.layers = {name: dict(said) for name, said in (layers or {}).items()}
        self.few_tokens = few_tokens
        if unknown := set(others) - {"quant_method"}:
            raise BadInput(f"quantization_config of {METHOD}: unknown entry {min(unknown)!r}")

    def recipe(self) -> Recipe:
        """Return the recipe for `sparsify`."""
        rows = [{"layer": name, **said} for name, said in self.layers.items()]
        return read_recipe({"pattern": self.pattern, "layers": rows})


@register_quantizer(METHOD)
class PrunecastQuantizer(HfQuantizer):  # type: ignore[misc]
    """Loads dense tensors with zeros, then replaces the layers that have them."""

    requires_calibration = True  # loading does not prune: refuse a dense checkpoint
    requires_parameters_quantization = False

    def _process_model_after_weight_loading(self, model: torch.nn.Module, **_: Any) -> torch.nn.Module:
        config: PrunecastConfig = self.quantization_config
        device = next(model.parameters()).device
        sparsify(
            model,
            config.recipe(),
            gpu=config.gpu or gpu_of(device),
            max_tokens=config.max_tokens,
            few_tokens=config.few_tokens,
        )
        return model

    def is_serializable(self, *_: Any, **__: Any) -> bool:
        """Return True: dense tensors are saved."""
        return True

    @property
    def is_trainable(self) -> bool:
        """Whether loaded weights have gradients: no."""
        return False

    @property
    def is_compileable(self) -> bool:
        """Whether torch.compile accepts the whole model: yes."""
        return True


def sparsify_pretrained(model: Any, recipe: Any, **options: Any) -> Sparsified:
    """Apply `sparsify` to a transformers model and record it in its configuration for `save_pretrained`."""
    done = sparsify(model, recipe, **options)
    gpu, read = options["gpu"], read_recipe(recipe)
    config = PrunecastConfig(
        pattern=read.pattern,
        gpu=gpu.name if isinstance(gpu, GpuSpec) else gpu,
        max_tokens=options["max_tokens"],
        few_tokens=options.get("few_tokens", True),
        layers={
            name: {"pattern": layer.pattern, "sparsity": round(1.0 - layer.density, 6)}
            for name in done.layers
            for layer in (model.get_submodule(name),)
        },
    )
    model.config.quantization_config = config
    model.hf_quantizer = PrunecastQuantizer(config, pre_quantized=True)
    return done


def load_pretrained(folder: str | Path, **options: Any) -> Any:
    """Return the model of a folder that `save_pretrained` wrote, of the class that its
    configuration names.
    """
    import transformers

    config = transformers.AutoConfig.from_pretrained(folder)
    names = config.architectures or ["AutoModel"]
    return getattr(transformers, names[0]).from_pretrained(folder, **{"dtype": "auto", **options})

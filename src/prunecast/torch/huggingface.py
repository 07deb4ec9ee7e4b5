"""Hugging Face transformers: `quant_method = "prunecast"` in the configuration of a model.

    import prunecast.torch.huggingface             # registers the quantizer
    sparsify_pretrained(model, "tile-wise:128", gpu="h200-sxm", max_tokens=2048)
    model.save_pretrained(folder)                  # dense tensors with zeros, and one block in config.json
    AutoModelForCausalLM.from_pretrained(folder, dtype="auto", device_map="cuda")

`prunecast prune FOLDER -o OUT` writes the same format. A checkpoint keeps its original tensors, so that plain
transformers without this package loads it as a dense model, with one warning about an unknown quantization
type. The block in config.json is never named `sparsity_config`, since vLLM refuses that name.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key
from transformers.quantizers.auto import register_quantization_config, register_quantizer
from transformers.quantizers.base import HfQuantizer
from transformers.utils.logging import get_logger
from transformers.utils.quantization_config import QuantizationConfigMixin

from prunecast.codesign.recipe import PrunedLayer, Recipe, read_recipe
from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec
from prunecast.kernels import KERNELS
from prunecast.patterns.sources.readers import RECIPE
from prunecast.torch.convert import Sparsified, sparsify
from prunecast.torch.experts import PARTS, find_experts
from prunecast.torch.find import find_layers
from prunecast.torch.layer_table import gpu_of
from prunecast.workload.graph.config import BY_LAYER, CONFIG, METHOD, QUANTIZED, read_config, stated_gpu

logger = get_logger(__name__)


@register_quantization_config(METHOD)
class PrunecastConfig(QuantizationConfigMixin):  # type: ignore[misc]
    """Quantization configuration of a pruned model, as `config.json` contains it.

    Parameters
    ----------
    pattern : pattern of the layers for which `layers` names none, e.g. `tile-wise:128`
    gpu : name of the GPU to plan for; None for the GPU that holds the weights
    max_tokens : largest number of tokens of a call
    layers : name of a module -> its pattern and sparsity. If empty, every linear layer whose zeros follow
        `pattern` becomes sparse
    few_tokens : also pack the weights for calls of up to 64 tokens

    Raises
    ------
    BadInput : `others` contains an unknown entry
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
        """Return the pattern and the layers as a recipe for `sparsify`."""
        rows = [{"layer": name, **said} for name, said in self.layers.items()]
        return read_recipe({"pattern": self.pattern, "layers": rows})


@register_quantizer(METHOD)
class PrunecastQuantizer(HfQuantizer):  # type: ignore[misc]
    """Quantizer that lets transformers load dense tensors, and then replaces pruned layers by sparse ones."""

    requires_calibration = True  # loading does not prune: refuse a dense checkpoint
    requires_parameters_quantization = False

    def _process_model_after_weight_loading(self, model: Any, **_: Any) -> Any:
        config: PrunecastConfig = self.quantization_config
        try:
            stated = stated_gpu(config.gpu, model.name_or_path)
            gpu = stated or gpu_of(next(model.parameters()).device)
        except BadInput as error:
            if config.gpu:
                raise
            logger.warning(f"prunecast: the model stays dense: {error}")
            return model
        if all(gpu.compute_capability < entry.least for entry in KERNELS["stspmm"].compilers.values()):
            logger.warning(f"prunecast: the model stays dense: no sparse kernel runs on {gpu.name}")
            return model
        recipe = _named_as_in(model, config.recipe())
        sparsify(model, recipe, gpu=gpu, max_tokens=config.max_tokens, few_tokens=config.few_tokens)
        return model

    def is_serializable(self, *_: Any, **__: Any) -> bool:
        """Return True: dense tensors are saved."""
        return True

    @property
    def is_trainable(self) -> bool:
        """False: loaded weights have no gradients."""
        return False

    @property
    def is_compileable(self) -> bool:
        """True: torch.compile accepts the whole model."""
        return True


def recipe_of_folder(model: Any, folder: str | Path) -> Recipe:
    """Return the recipe of a folder that `prunecast prune` wrote, with the layer names of the loaded `model`.

    Raises
    ------
    BadInput : the folder's configuration contains no pruning by prunecast, or the recipe is that of another
        model
    """
    entry = read_config(Path(folder) / CONFIG).get(QUANTIZED) or {}
    if entry.get("quant_method") != METHOD:
        raise BadInput(f"{folder}: its configuration names no pruning of {METHOD}")
    return _named_as_in(model, PrunecastConfig(**entry).recipe())


def _named_as_in(model: Any, recipe: Recipe) -> Recipe:
    """Return the recipe with the names of the model's linear layers in place of those of the checkpoint.

    The experts of a layer, which transformers joins to one tensor, become one layer of the recipe. Other
    pruned weights that are no linear layer of this model stay dense with their zeros; one warning counts
    them. Tiles come from the folder that the model was loaded from, if `prunecast prune` wrote it.

    Raises
    ------
    BadInput : no layer of the recipe is a layer of the model
    """
    state = model.state_dict()
    experts = {layer.name for stack in find_experts(model) for layer in stack.layers}
    found = experts | {layer.name for layer in find_layers(model)[0]}
    transforms = get_model_conversion_mapping(model)
    renamings = [each for each in transforms if isinstance(each, WeightRenaming)]
    converters = [each for each in transforms if isinstance(each, WeightConverter)]
    names = {}
    for layer in recipe.layers:
        if layer.module in experts:
            names[layer.module] = layer.module
            continue
        key = f"{layer.module}.weight"
        new, _ = rename_source_key(key, renamings, converters, model.base_model_prefix, state)
        if new not in state:  # the checkpoint has the names of this transformers version
            new, _ = rename_source_key(key, [], [], model.base_model_prefix, state)
        names[layer.module] = new.removesuffix(".weight")
    left = [name for name, new in names.items() if new not in found]
    if recipe.layers and len(left) == len(names):
        raise BadInput(
            f"{model.name_or_path}: a recipe of another model: it prunes {left[0]!r} and no linear layer of "
            f"{type(model).__name__}"
        )
    if left:
        more = f" and {len(left) - 1} more" if len(left) > 1 else ""
        logger.warning(f"prunecast: {left[0]}{more} stay dense: no linear layer, or tied to another")
    folder = Path(model.name_or_path or "")
    tiles = read_recipe(folder).tiles if (folder / RECIPE).is_file() else {}
    single = found - experts
    layers = [
        replace(layer, layer=names[layer.module]) for layer in recipe.layers if names[layer.module] in single
    ]
    for name in experts:
        own = [layer for layer in recipe.layers if names[layer.module] == name]
        layers += _joined_experts(own, name, state[name].shape[1])
    tiles = {names[name]: own for name, own in tiles.items() if name in names and names[name] in single}
    return replace(recipe, layers=tuple(layers), tiles=tiles)


def _joined_experts(layers: list[PrunedLayer], name: str, rows: int) -> list[PrunedLayer]:
    """Return a list with one recipe entry that replaces the entries `layers` of all experts.

    The list is empty if their patterns differ or are not `tile-wise`, or if a tile would contain rows of two
    experts, or rows of gate and of up. `rows` is the number of rows of one expert.
    """
    patterns = {layer.pattern or "" for layer in layers}
    family, _, height = (patterns.pop() if len(patterns) == 1 else "").partition(":")
    half = rows // 2 if name.endswith(PARTS[0]) else rows  # gates, then ups
    if family != "tile-wise" or not height.isdecimal() or half % int(height):
        return []
    return [replace(layers[0], layer=name, sparsity=min(layer.sparsity or 0.0 for layer in layers))]


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


def load_pretrained(folder: str | Path, *, gpu: str | None = None, **options: Any) -> Any:
    """Load the model of a folder that `save_pretrained` or `prunecast prune` wrote.

    The configuration in the folder names the class of the model.

    Parameters
    ----------
    gpu : name of the GPU to plan for, instead of the one that the folder names or that holds the weights
    options : keyword arguments for `from_pretrained`
    """
    import transformers

    content = read_config(Path(folder) / CONFIG)
    if content.get(BY_LAYER):  # checks of such a config read sizes of the whole model
        content["allow_global_per_layer_attribute_access"] = True
        config = transformers.AutoConfig.for_model(**content)
    else:
        config = transformers.AutoConfig.from_pretrained(folder)
    model = getattr(transformers, (config.architectures or ["AutoModel"])[0])
    if gpu is not None:
        config.quantization_config = {**config.quantization_config, "gpu": gpu}
    options = {"dtype": "auto", "config": config, **options}
    with _sizes_by_layer(model, config):
        return model.from_pretrained(folder, **options)


@contextmanager
def _sizes_by_layer(model: Any, config: Any) -> Iterator[None]:
    """Context manager that creates each layer with its own sizes from `config.per_layer_config`.

    Few model classes read `per_layer_config` themselves. In the context, the constructors of the layer
    classes of `model` get the config of their layer instead of that of the whole model.
    """
    if not getattr(config, "is_heterogeneous", False):
        yield
        return
    module = sys.modules[model.__module__]
    # Transformers keeps the names of the layer classes in this list, because a layer is never split over GPUs
    layers = [getattr(module, name) for name in model._no_split_modules if hasattr(module, name)]
    originals = {layer: layer.__init__ for layer in layers}

    # A function of the class, since a closure made in the loop below would see only the last class
    def with_own_config(layer: Any) -> Callable[..., None]:
        def init(self: Any, config: Any, layer_idx: int, *more: Any, **named: Any) -> None:
            originals[layer](self, config.per_layer_config[layer_idx], layer_idx, *more, **named)

        return init

    try:
        for layer in layers:
            layer.__init__ = with_own_config(layer)
        yield
    finally:
        for layer, original in originals.items():
            layer.__init__ = original

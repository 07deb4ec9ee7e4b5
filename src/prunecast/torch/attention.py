"""`prepare_attention`: let Hugging Face transformers models, dense or sparse, run fused attention kernels.

While a graph is traced or captured, transformers cannot read the values of a mask. It then passes a mask to
every layer, even if the caller gave none, and attention kernels with a mask are slower. The mask that
transformers creates without padding and the position biases of T5 have strides that no fused kernel accepts;
torch then computes unfused attention in fp32. If the caller states how the inputs are padded, fewer layers
need a mask.
"""

import inspect
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from prunecast.arguments import checked
from prunecast.errors import BadInput, check_choice
from prunecast.torch import masked_attention

PADDINGS = ("none", "right", "any")
MOST_KEYS_WITHOUT_MASK = 128
"""Largest number of keys for which encoders without a mask run the attention kernel of this package.

Kind: measured, H200: BERT-base with 32 x 128 tokens needs 1648 us with this kernel and 1660 us without; if
75 % of the weights are removed, 892 and 941 us. For 16 sequences of 256 keys, this kernel needs 20 us and
cuDNN 18 us.
"""
_HOOK = "_prunecast_gives_mask"
"""Attribute of a model that stores the handle of the hook of `prepare_attention`."""
_KERNELS = {0: "fp32 products", 1: "flash", 2: "memory-efficient", 3: "cuDNN"}
"""Number of a `torch.nn.attention.SDPBackend` -> name of its kernel."""


class PreparedAttention(NamedTuple):
    """Result of `prepare_attention`: the registered attention function, and the kernels that it runs."""

    implementation: str
    """Name under which the attention is registered in transformers."""
    kernels: Mapping[str, str]
    """Name of an attention module -> name of its kernel for the example; empty if no example is given."""

    def __str__(self) -> str:
        found = Counter(self.kernels.values())
        what = ", ".join(f"{count} layers {kernel}" for kernel, count in found.items())
        return f"attention {self.implementation}: {what or 'give an example to see the kernels'}"


@checked
def prepare_attention(
    model: nn.Module, *, padding: str = "any", example: Mapping[str, Any] | None = None
) -> PreparedAttention:
    """Let a transformers model run fused attention kernels, and leave out the masks that its inputs do not
    need.

    The model may be dense or sparse. Call this before torch.compile and before graph capture. On a GPU,
    encoders with a padding mask run a kernel of this package, which reads one mask row per sequence instead
    of one per query.

    Parameters
    ----------
    model : a transformers model whose attention calls `scaled_dot_product_attention`
    padding : how the inputs are padded. `none`: `attention_mask` contains no zeros and is not read. `right`:
        padding follows the last token, so that causal attention needs no mask. `any`: masks are read. Eager
        calls raise BadInput for a mask with another padding; compiled and captured graphs cannot check it
    example : keyword arguments of `model.forward`. If given, the model is run once with them, and the result
        lists the kernels

    Raises
    ------
    BadInput : the attention of the model cannot be replaced, or `padding` is unknown
    """
    check_choice("padding", padding, PADDINGS)
    kind = type(model).__name__
    # Models that support flash attention pass masks (sequences, keys) to their layers unchanged
    reads_keys = bool(getattr(model, "_supports_flash_attn", False))
    name = f"prunecast_{padding}" if reads_keys else f"prunecast_{padding}_pairs"
    if not hasattr(model, "set_attn_implementation"):
        raise BadInput(f"attention is prepared for models of transformers, got {kind}")
    _register(name, padding, reads_keys=reads_keys)
    text = getattr(model.config, "get_text_config", lambda: model.config)()
    if getattr(text, "attn_logit_softcapping", None) is not None:
        raise BadInput(f"{kind} caps attention scores, which no fused kernel of torch does")
    try:
        model.set_attn_implementation(name)
    except (ValueError, ImportError) as error:
        raise BadInput(f"{kind} has no attention that can be exchanged: {error}"[:200]) from None
    if model.config._attn_implementation != name:
        raise BadInput(f"{kind} has no attention that can be exchanged")
    for module in model.modules():
        if (old := module.__dict__.pop(_HOOK, None)) is not None:
            old.remove()
        is_model = hasattr(module, "set_attn_implementation")
        if is_model and padding != "any" and "attention_mask" in inspect.signature(module.forward).parameters:
            module.__dict__[_HOOK] = module.register_forward_pre_hook(_give_mask, with_kwargs=True)
    return PreparedAttention(name, {} if example is None else attention_kernels(model, example))


def attention_kernels(model: nn.Module, example: Mapping[str, Any]) -> dict[str, str]:
    """Run a model once, and return the kernel that each of its attention modules uses.

    The result maps names of modules to text such as `cuDNN, causal`. Modules that call neither
    `scaled_dot_product_attention` nor the kernel of this package are not listed. `example` are keyword
    arguments of `model.forward`.
    """
    names = {id(module): name for name, module in model.named_modules()}
    running: list[str] = []
    found: dict[str, str] = {}

    def recorded(
        query: Any, key: Any, value: Any, attn_mask: Any = None, *others: Any, **options: Any
    ) -> Any:
        given = (query, key, value, attn_mask, *others)
        kernel = _KERNELS.get(int(torch._fused_sdp_choice(*given, **options)), "another")
        is_causal = options.get("is_causal", len(others) > 1 and others[1])
        reads = "mask" if attn_mask is not None else "causal" if is_causal else "no mask"
        found[running[-1]] = f"{kernel}, {reads}"
        return attend(*given, **options)

    def recorded_attend(query: Any, key: Any, value: Any, mask: Any, scale: Any) -> Any:
        found[running[-1]] = f"prunecast, {'no mask' if mask is None else 'mask of keys'}"
        return own_attend(query, key, value, mask, scale)

    attend, own_attend = nn.functional.scaled_dot_product_attention, masked_attention.attend
    hooks = (
        register_module_forward_pre_hook(lambda module, _: running.append(names.get(id(module), ""))),
        register_module_forward_hook(lambda *_: running.pop() and None),
    )
    nn.functional.scaled_dot_product_attention, masked_attention.attend = recorded, recorded_attend
    try:
        with torch.no_grad():
            model(**example)
    finally:
        nn.functional.scaled_dot_product_attention, masked_attention.attend = attend, own_attend
        for hook in hooks:
            hook.remove()
    return found


def _give_mask(_: nn.Module, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
    """Add a mask of ones to a call without a mask; `_mask_to_read` leaves it out again.

    Without `attention_mask`, transformers searches the positions for packed sequences, and a traced graph
    then contains a mask.
    """
    others = ("attention_mask", "past_key_values", "position_ids")
    if len(args) > 1 or any(given.get(each) is not None for each in others):
        return None
    x = args[0] if args else given.get("input_ids", given.get("inputs_embeds"))
    if not isinstance(x, torch.Tensor) or x.is_floating_point():
        return None
    return args, {**given, "attention_mask": x.new_ones(x.shape)}


def _register(name: str, padding: str, *, reads_keys: bool) -> None:
    """Register an attention function and a mask function in transformers under `name`.

    With `reads_keys`, layers of an encoder get the padding mask (sequences, keys) if a kernel of this package
    can read it.
    """
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import sdpa_mask

    def mask(**given: Any) -> torch.Tensor | None:
        """Return the mask of a layer; None if the layer needs no mask."""
        read = _mask_to_read(padding, given)
        if read is None and _needs_none(given):
            return None
        if reads_keys and read is not None and _masks_keys(given):
            return read.bool()
        made: torch.Tensor | None = sdpa_mask(**{**given, "attention_mask": read})
        return made

    def attention(
        module: nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        **options: Any,
    ) -> Any:
        """Call the attention of transformers with masks and biases that fused kernels accept."""
        if _runs_own_kernel(module, (query, key, value), attention_mask, options):
            scale = options.get("scaling")
            return masked_attention.attend(query, key, value, attention_mask, scale), None
        if attention_mask is not None and attention_mask.dim() == 2:
            attention_mask = attention_mask[:, None, None, :].expand(-1, 1, query.shape[2], -1)
        bias = options.get("position_bias")
        if bias is not None and bias.stride(-1) != 1:
            options["position_bias"] = bias.contiguous()
        if attention_mask is not None and attention_mask.stride(-1) != 1:
            attention_mask = attention_mask.contiguous()
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)

    AttentionInterface.register(name, attention)
    AttentionMaskInterface.register(name, mask)


def _mask_to_read(padding: str, given: Mapping[str, Any]) -> torch.Tensor | None:
    """Return the padding mask (batch, keys) if a layer needs it, else None.

    Raise BadInput in eager calls for a mask that contradicts `padding`.
    """
    read: torch.Tensor | None = given.get("attention_mask")
    if (
        read is None
        or padding == "any"
        or (padding == "right" and not given.get("allow_is_causal_skip", True))
    ):
        return read
    if not (torch.compiler.is_compiling() or (read.is_cuda and torch.cuda.is_current_stream_capturing())):
        is_as_said = read.all() if padding == "none" else (read[:, 1:] <= read[:, :-1]).all()
        if not is_as_said:
            raise BadInput(f"attention is prepared for padding={padding!r}, got a mask of another padding")
    return None


def _needs_none(given: Mapping[str, Any]) -> bool:
    """Return whether a layer whose inputs are not padded needs no mask.

    It needs none if each query reads all keys, or if attention is causal and begins at the first token.
    """
    queries, keys, local = given["q_length"], given["kv_length"], given.get("local_size")
    if local is not None and keys >= local:
        return False
    if given.get("allow_is_bidirectional_skip", False):
        return True
    return bool(given.get("allow_is_causal_skip", True)) and queries == keys


def _runs_own_kernel(
    module: nn.Module,
    operands: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    mask: torch.Tensor | None,
    options: Mapping[str, Any],
) -> bool:
    """Return whether the kernel of this package runs a call.

    It runs calls with a mask (sequences, keys), and non-causal calls without a mask and with few keys.
    """
    query, key, value = operands
    if options.get("dropout") or any(
        options.get(name) is not None for name in ("position_bias", "softcap", "cache")
    ):
        return False
    if mask is None:
        stated = options.get("is_causal")
        is_causal = getattr(module, "is_causal", True) if stated is None else stated
        if is_causal or key.shape[2] > MOST_KEYS_WITHOUT_MASK:
            return False
    elif mask.shape != (query.shape[0], key.shape[2]):
        return False
    return masked_attention.supports(query, key, value)


def _masks_keys(given: Mapping[str, Any]) -> bool:
    """Return whether the mask of a layer only excludes padded keys, and the device has a kernel for such
    masks.
    """
    read, local = given["attention_mask"], given.get("local_size")
    is_whole = read.dim() == 2 and read.shape[1] == given["kv_length"] and local is None
    is_bidirectional = bool(given.get("allow_is_bidirectional_skip", False))
    return is_whole and is_bidirectional and masked_attention.runs_on(read.device, given.get("dtype"))

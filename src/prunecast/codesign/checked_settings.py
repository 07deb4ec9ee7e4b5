"""`checked_settings`: check the settings of a prediction. `passes_of`: the forward passes to predict."""

from collections.abc import Callable, Mapping
from inspect import Parameter, Signature, signature
from typing import Any, ParamSpec, TypeVar, cast, get_type_hints

from prunecast.arguments import checked_items
from prunecast.errors import BadInput, check_choice
from prunecast.hardware import GpuSpec
from prunecast.kernels import DTYPE_BYTES
from prunecast.kernels.libraries.experts.routing import check_routing
from prunecast.kernels.libraries.scaled.call import SCALES
from prunecast.launch import CacheState, Conditions
from prunecast.patterns import SCOPES, parse_pattern
from prunecast.patterns.pattern import check_sparsity
from prunecast.settings import SETTINGS, PredictSettings
from prunecast.workload.conv_settings import ConvSettings
from prunecast.workload.engines import ENGINES
from prunecast.workload.graph import RUNTIMES, Pass
from prunecast.workload.graph.shapes import checked_tokens
from prunecast.workload.layers import Source, has_model
from prunecast.workload.pruned_maps import sparsity_for
from prunecast.workload.timed_passes import BATCH, check_batch, timed_passes

P = ParamSpec("P")
R = TypeVar("R")
MATRICES = ConvSettings()
"""Default setting for convolutions: the filters of a layer are predicted as one matrix."""
_KINDS = get_type_hints(PredictSettings, localns={"ConvSettings": ConvSettings, "GpuSpec": GpuSpec})
KEYWORDS = [
    Parameter(name, Parameter.KEYWORD_ONLY, default=SETTINGS[name].default, annotation=kind)
    for name, kind in _KINDS.items()
]
"""The settings of `PredictSettings` as keyword-only parameters of a function signature."""


def with_settings(function: Callable[P, R]) -> Callable[P, R]:
    """Add the settings to the signature and docstring of a function with `**settings` (a decorator).

    They replace the docstring's line "settings : see `PredictSettings`", which must be written exactly so.
    """
    own = signature(function)
    named = [one for one in own.parameters.values() if one.kind is not Parameter.VAR_KEYWORD]
    every = sorted((*named, *KEYWORDS), key=lambda one: (one.kind, one.default is not Parameter.empty))
    function.__signature__ = own.replace(parameters=every)  # type: ignore[attr-defined]
    lines = "\n".join(f"    {name} : {one.help} Default: {one.words}" for name, one in SETTINGS.items())
    function.__doc__ = (function.__doc__ or "").replace("    settings : see `PredictSettings`", lines)
    return function


def checked_settings(given: Mapping[str, Any], function: str = "predict") -> PredictSettings:
    """Check the given settings and return all settings, with defaults for those that are missing.

    Parameters
    ----------
    function : name of the function that was called, for error messages

    Raises
    ------
    TypeError : a name is unknown, the GPU is missing, or a value has the wrong type
    BadInput : a value is invalid for all weights
    """
    try:
        bound = Signature(KEYWORDS).bind(**given)
    except TypeError as error:
        raise TypeError(f"{function}: {error}") from None
    bound.apply_defaults()
    if bound.arguments["convolutions"] is None:
        bound.arguments["convolutions"] = MATRICES
    settings = cast(PredictSettings, checked_items(bound.arguments, _KINDS, function))
    tokens, workload, sparsity = settings["tokens"], settings["workload"], settings["sparsity"]
    if tokens is not None:
        checked_tokens(tokens)
    if tokens is not None and workload is not None:
        raise BadInput(f"tokens and a workload exclude each other, got {tokens} and {workload}")
    per_token = settings["experts_per_token"]
    if per_token is not None and per_token < 1:
        raise BadInput(f"experts-per-token must be at least 1, got {per_token}")
    check_routing(settings["routing"])
    Conditions(
        settings["state"],
        settings["launch"],
        CacheState("cold" if settings["l2"] is None else settings["l2"]),
    )
    choices = {
        "engine": ENGINES,
        "runtime": RUNTIMES,
        "scales": SCALES,
        "scope": SCOPES,
        "dtype": DTYPE_BYTES,
    }
    for name, known in choices.items():
        value = bound.arguments[name]
        if value is not None:
            check_choice(name, value, known)
    if settings["scales"] != SETTINGS["scales"].default and settings["dtype"] != "fp8":
        got = settings["dtype"] or "none"
        raise BadInput(f"scales {settings['scales']} are of x in fp8: wanted dtype fp8, got {got}")
    if sparsity is not None:
        check_sparsity(sparsity)
    if settings["pattern"] is not None:
        pattern = parse_pattern(settings["pattern"])
        pattern.sparsity_to_prune(sparsity_for(pattern, sparsity, natural=False))
    return settings


def settings_of(weights: Source, given: Mapping[str, Any], function: str = "predict") -> PredictSettings:
    """Return the checked settings for `weights`.

    A model gets a default workload if neither a workload nor tokens are given.

    Parameters
    ----------
    function : name of the function that was called, for error messages

    Raises
    ------
    TypeError, BadInput : in the same cases as `checked_settings`
    BadInput : the batch has no effect on these weights
    """
    settings = checked_settings(given, function)
    batch, workload = settings["convolutions"].batch, settings["workload"]
    check_batch(weights, batch, workload=workload, has_images=bool(settings["convolutions"].input_size))
    if workload is None and settings["tokens"] is None and has_model(weights):
        settings["workload"] = f"batch:{batch or BATCH}"
    return settings


def passes_of(weights: Source, settings: PredictSettings) -> tuple[Pass, ...]:
    """Return the forward passes to predict (such as prefill and decode), with their token counts."""
    batch, tokens = settings["convolutions"].batch, settings["tokens"]
    runs = timed_passes(weights, tokens=tokens, batch=batch, workload=settings["workload"])
    if settings["runtime"] == "torch" and not has_model(weights) and batch is not None:
        runs = tuple(run._replace(batch=batch) for run in runs)
    routing, gpus = settings["routing"], settings["tensor_parallel"]
    return tuple(run._replace(routing=routing, gpus=gpus) for run in runs)

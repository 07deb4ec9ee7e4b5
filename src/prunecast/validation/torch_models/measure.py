"""Measure one model on a GPU, dense and sparse: eager, in a CUDA graph, and compiled in a CUDA graph.

The output of each variant is checked against the dense model with the same weights. Then single forward
passes are timed, variants alternately, with rests. The kernels of compiled variants are traced. The compiled
dense model has fused Q/K/V and gate/up projections, as a careful user would have it. It keeps the weights
from before pruning, because zeros draw less power: with the pruned weights (`dense zeros overlapped`) its
products are up to 10 % faster.
"""

import gc
import time
import traceback
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from prunecast.plan.misaligned import FEW_TOKENS
from prunecast.torch import fuse_dense, sparsify
from prunecast.torch.huggingface import recipe_of_folder
from prunecast.validation.torch_models.models import make_model, passes, without_zeros
from prunecast.validation.torch_models.predicted import ModelCase
from prunecast.validation.torch_models.timing import Forward, captured, error, times_us, traced

VARIANTS = (
    "dense eager",
    "dense graph",
    "dense compiled",
    "dense overlapped",
    "dense zeros overlapped",
    "sparse eager",
    "sparse graph",
    "sparse compiled",
    "sparse overlapped",
)
"""Variants of a model. `overlapped` is compiled with programmatic dependent launch (PDL)."""
COMPILED = tuple(name for name in VARIANTS if name.endswith(("compiled", "overlapped")))
DEVICE = "cuda"
Say = Callable[[str], None]
Row = dict[str, Any]


@torch.no_grad()  # type: ignore[untyped-decorator]
def measure(
    case: ModelCase,
    gpu: str,
    *,
    rounds: int = 25,
    dtype: torch.dtype = torch.float16,
    variants: tuple[str, ...] = VARIANTS,
    say: Say = print,
) -> Row:
    """Return the measured numbers of a case, ready for JSON.

    Keys: `us`, time in us of each variant; `traces`, kernels of each compiled variant; `error`, output error
    of each variant; `refused`, reason of each variant that failed.
    """
    torch.manual_seed(0)
    torch._dynamo.reset()
    models = {"dense": make_model(case, dtype, DEVICE)}
    run = case.run
    if case.promise is None:
        models["sparse"] = _copy(models["dense"], case, dtype)
        how: dict[str, Any] = {"recipe": case.pattern, "sparsity": case.sparsity}
    else:
        models["sparse"] = make_model(case, dtype, DEVICE)
        how = {"recipe": recipe_of_folder(models["sparse"], case.model)}
        without_zeros(models["dense"])
    done = sparsify(
        models["sparse"],
        gpu=gpu,
        max_tokens=max(run.columns, 4 * FEW_TOKENS),
        few_tokens=run.columns <= FEW_TOKENS,
        quiet=True,
        **how,
    )
    mib = [round(each / 2**20) for each in (done.bytes_before, done.bytes_after)]
    promise = case.promise
    row: Row = {
        "case": case.name,
        **case._asdict(),
        "run": run._asdict(),
        "promise": promise and {**promise._asdict(), "conditions": promise.conditions.document()},
        "pack_s": done.seconds,
        "mib": mib,
        "error": {},
        "refused": {},
    }
    call = passes(case, DEVICE)
    made = _made(case, dtype, call, models, variants, row, say)
    row["us"] = times_us(made, rounds)
    row["traces"] = {name: _trace_document(made[name]) for name in COMPILED if name in made}
    del made, models
    gc.collect()
    torch.cuda.empty_cache()
    return row


def _copy(model: nn.Module, case: ModelCase, dtype: torch.dtype) -> nn.Module:
    twin = make_model(case, dtype, DEVICE)
    twin.load_state_dict(model.state_dict())
    return twin


def _made(
    case: ModelCase,
    dtype: torch.dtype,
    call: Callable[[nn.Module], Forward],
    models: dict[str, nn.Module],
    variants: tuple[str, ...],
    row: Row,
    say: Say,
) -> dict[str, Forward]:
    """Return the variants that run, by name.

    Store the output error of each in `row["error"]`, against the dense model with the same weights, and the
    reasons of variants that fail in `row["refused"]`.
    """
    made: dict[str, Forward] = {}
    zeros = make_model(case, dtype, DEVICE)
    zeros.load_state_dict(models["sparse"].state_dict())
    wanted = {"sparse": call(zeros)().clone(), "dense": call(models["dense"])().clone()}
    for name in variants:
        kind, form = name.split()[0], name.split()[-1]
        start = time.monotonic()
        try:
            if name in COMPILED:
                model = models[kind]
                if kind != "sparse":
                    # Fuse products with the same input
                    dense = zeros if "zeros" in name else models["dense"]
                    model = fuse_dense(_copy(dense, case, dtype))
                torch._dynamo.reset()
                with torch._inductor.config.patch({"triton.enable_pdl": form == "overlapped"}):
                    forward = captured(call(torch.compile(model)))
            else:
                forward = call(models[kind])
                forward = captured(forward) if form == "graph" else forward
            row["error"][name] = error(forward(), wanted["sparse" if "zeros" in name else kind])
            made[name] = forward
            say(f"{case.name}: {name}, {time.monotonic() - start:.1f} s")
        except Exception as refused:  # any error of torch is recorded as the reason
            row["refused"][name] = f"{type(refused).__name__}: {str(refused)[:300]}"
            say(f"{case.name}: {name}: {traceback.format_exc()[-1500:]}")
    return made


def _trace_document(forward: Forward) -> Row:
    trace = traced(forward)
    return {
        "busy_us": trace.busy_us,
        "span_us": trace.span_us,
        "kernels": [list(row) for row in trace.rows()],
    }

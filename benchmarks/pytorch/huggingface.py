"""How much faster is a pruned model of Hugging Face, as it comes and with its attention prepared?

    python -m benchmarks.pytorch.huggingface [--only TEXT] [--blocks N] [--seconds N] [--out F.json] [--tiny]
    python -m benchmarks.pytorch.huggingface --quick [--only TEXT] ...
    python -m benchmarks.pytorch.huggingface --show F.json
    python -m benchmarks.pytorch.huggingface --predict [--only TEXT] [--blocks N]

Classes of transformers with random weights, `sparsify` and `prepare_attention`, no other code. Every case
runs twice: as it comes, and with attention prepared in the dense and the sparse model. The dense model is the
fastest of eager, CUDA graph, and torch.compile with fused Q/K/V and gate/up in a graph; the sparse one the
fastest of the same three. Medians of single passes, all variants in turn, with rests. The rows `generate` are
those of `benchmarks.pytorch.generate`. Each row ends with the pass times of `predict --runtime torch`, where
the launches of the architecture are known. Needs the GPU that --gpu names. `--tiny` runs every row with one
small block, on a CPU too: a test that it runs, whose times mean nothing. `--predict` prints the predictions
alone, without a GPU.
"""

import argparse
import json
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers as hf
from torch import nn

from benchmarks.pytorch.cases import CASES, DEVICE, PATTERN, Case, Inputs, predicted_us, release
from benchmarks.pytorch.generate import SPARSITY, generations, host_limits, measure_generation
from prunecast.torch import fuse_dense, prepare_attention, sparsify
from prunecast.torch.attention import attention_kernels
from prunecast.validation.torch_models.timing import captured, error, times_us, traced

MOST_ROUNDS_OF_GENERATE = 7
ATTENTION = ("as it comes", "prepared")


@torch.no_grad()
def measure(
    case: Case,
    gpu: str,
    rounds: int,
    engine: str,
    attention_forms: Sequence[str] = ATTENTION,
    *,
    quick: bool = False,
) -> dict[str, Any]:
    """Return times in us by attention and variant, errors, kernels of attention and of compiled passes.

    Parameters
    ----------
    quick : only compiled passes, and no predictions
    """
    torch.manual_seed(1)
    began, inputs = time.monotonic(), case.inputs()
    models = {"dense": case.make(), "dense fused": fuse_dense(case.make())}
    wanted: dict[str, torch.Tensor] = {}
    for sparsity in case.sparsities:
        name = f"sparse {sparsity:.0%}"
        models[name] = case.make()
        tokens = case.batch * case.tokens
        sparsify(
            models[name], PATTERN, sparsity=sparsity, gpu=gpu, max_tokens=tokens, few_tokens=False, quiet=True
        )
        zeros = case.make()
        zeros.load_state_dict(models[name].state_dict())
        wanted[name] = _real(zeros(**inputs).last_hidden_state, inputs)
        del zeros
    row: dict[str, Any] = {
        "case": case.name,
        "padding": case.padding,
        "device": DEVICE,
        "us": {},
        "traces": {},
    }
    row["error"], row["kernels"], row["refused"] = {}, {}, {}
    for attention in attention_forms:
        if attention == "prepared":
            for model in models.values():
                prepare_attention(model, padding=case.padding)
        row["kernels"][attention] = sorted(set(attention_kernels(models["dense"], inputs).values()))
        variants = _variants(models, inputs, row["refused"], attention, quick=quick)
        for name, forward in variants.items():
            own = " ".join(name.split()[:2])
            if own in wanted:
                off = error(_real(forward(), inputs), wanted[own])
                row["error"][own] = max(off, row["error"].get(own, 0.0))
        row["us"][attention] = times_us(variants, rounds)
        for name in ("dense fused compiled", f"sparse {case.sparsities[0]:.0%} compiled"):
            if name in variants and DEVICE == "cuda":
                row["traces"][f"{attention}: {name}"] = traced(variants[name]).rows()
        variants.clear()
    if not quick:
        row["predicted_us"] = predicted_us(case.config, case.workload, case.sparsities, gpu, engine)
    row["seconds"] = time.monotonic() - began
    release(models)
    return row


def _real(states: torch.Tensor, inputs: Inputs) -> torch.Tensor:
    """Return the states of tokens that are no padding: those of padding are anything."""
    mask = inputs.get("attention_mask")
    return states.clone() if mask is None else states[mask.bool()]


def _variants(
    models: dict[str, nn.Module], inputs: Inputs, refused: dict[str, str], attention: str, *, quick: bool
) -> dict[str, Callable[[], torch.Tensor]]:
    found: dict[str, Callable[[], torch.Tensor]] = {}
    for kind, model in models.items():
        forms = ("eager", "graph") if kind == "dense" else ("compiled",)
        for form in ("eager", "graph", "compiled") if kind.startswith("sparse") else forms:
            if quick and form != "compiled":
                continue
            try:
                torch._dynamo.reset()
                backend = "inductor" if DEVICE == "cuda" else "eager"  # C++ takes minutes
                run = torch.compile(model, backend=backend) if form == "compiled" else model

                def forward(run: Any = run) -> torch.Tensor:
                    return run(**inputs).last_hidden_state

                with torch._inductor.config.patch({"triton.enable_pdl": True}):
                    found[f"{kind} {form}"] = forward if form == "eager" else captured(forward)
            except Exception as reason:  # what torch refuses is a line of the record
                refused[f"{attention}: {kind} {form}"] = f"{type(reason).__name__}: {str(reason)[:300]}"
                print(traceback.format_exc()[-1200:], flush=True)
    return found


def show(document: dict[str, Any]) -> None:
    """Print one line for each case and sparsity: dense, sparse, speedup, eager, for each way to attend or to
    generate; then the prediction, and the host's part in `generate`.
    """
    for row in document["rows"]:
        for sparse, off in row["error"].items():
            where = ", on a CPU" if row.get("device") == "cpu" else ""
            cells = [f"{row['case']} {sparse.split()[-1]}{where}"]
            for group, us in row["us"].items():
                own = {name: t for name, t in us.items() if name.startswith((sparse, "dense"))}
                cells += [f"{group} {_cell(own, sparse, row.get('tokens_per_pass'))}"] if own else []
            cells.append(_predicted(row.get("predicted_us"), sparse, row.get("tokens_per_pass")))
            print(" | ".join((*cells, f"error {off:.2%}", str(row["kernels"]), f"{row['seconds']:.0f} s")))
        for line in host_limits(row["us"]) if row.get("device") == "cuda" else ():
            print(f"    {line}")
        for name, why in row["refused"].items():
            print(f"    {name}: {why[:200]}")


def _cell(us: dict[str, float], sparse: str, tokens: int | None = None) -> str:
    """Return the best dense and sparse time, their ratio, and the ratio of eager passes; with `tokens` of a
    pass, tokens per second too.
    """
    times = {kind: {name: t for name, t in us.items() if name.startswith(kind)} for kind in ("dense", sparse)}
    if not all(times.values()):
        return "-"
    best = {kind: min(own, key=own.__getitem__) for kind, own in times.items()}
    words = [f"{us[name]:.0f} ({name.split()[-1]})" for name in best.values()]
    ratio = us[best["dense"]] / us[best[sparse]]
    if tokens:
        words += [f"{1e6 * tokens / us[name]:.0f}" for name in best.values()] + ["tokens/s"]
    eager = us.get("dense eager"), us.get(f"{sparse} eager")
    return " ".join((*words, f"{ratio:.2f}")) + (f", eager {eager[0] / eager[1]:.2f}" if all(eager) else "")


def _predicted(us: dict[str, float] | None, sparse: str, tokens: int | None = None) -> str:
    """Return the predicted dense and sparse time and their ratio; with `tokens` of a pass, tokens per second
    too.
    """
    if not us:
        return "not predicted"
    times = [us["dense"], us[sparse]]
    words = [f"{t:.0f}" for t in times]
    if tokens:
        words += [f"{1e6 * tokens / t:.0f}" for t in times] + ["tokens/s"]
    return f"predicted {' '.join(words)} {times[0] / times[1]:.2f}"


def predict_only(gpu: str, *, only: str, blocks: int, engine: str) -> None:
    """Print the predictions of all rows whose name holds `only`."""
    for case in CASES:
        if only in case.name:
            us = predicted_us(case.config, case.workload, case.sparsities, gpu, engine)
            for sparsity in case.sparsities:
                print(f"{case.name} {sparsity:.0%} | {_predicted(us, f'sparse {sparsity:.0%}')}", flush=True)
    for wanted in generations(blocks):
        if only in wanted.name:
            us = predicted_us(wanted.config, wanted.workload, (SPARSITY,), gpu, engine)
            print(f"{wanted.name} | {_predicted(us, f'sparse {SPARSITY:.0%}', wanted.batch)}", flush=True)


Job = Callable[[], dict[str, Any]]


def jobs(gpu: str, *, rounds: int, blocks: int, engine: str, tiny: bool, quick: bool) -> dict[str, Job]:
    """Return what is measured, by name: passes, then `generate`."""
    found: dict[str, Job] = {}
    for case in CASES:
        own = case.tiny() if tiny else case
        forms = ATTENTION[1:] if quick else ATTENTION
        found[case.name] = partial(measure, own, gpu, rounds, engine, forms, quick=quick)
    for wanted in generations(blocks):
        few = min(rounds, MOST_ROUNDS_OF_GENERATE)
        writes = wanted.tiny() if tiny else wanted
        found[wanted.name] = partial(measure_generation, writes, gpu, few, engine, quick=quick)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--gpu", default="h200-sxm")
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--seconds", type=float, default=540.0, help="begin no case after so many")
    parser.add_argument("--blocks", type=int, default=32, help="of the model that generates")
    parser.add_argument("--engine", default="simulator", help="of the predictions; or model")
    parser.add_argument("--tiny", action="store_true", help="one small block, for tests")
    parser.add_argument("--quick", action="store_true", help="compiled passes, prepared, and captured loops")
    parser.add_argument("--predict", action="store_true", help="print predictions alone, without a GPU")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--show", type=Path)
    asked = parser.parse_args()
    if asked.show is not None:
        show(json.loads(asked.show.read_text()))
        return
    if asked.predict:
        predict_only(asked.gpu, only=asked.only, blocks=asked.blocks, engine=asked.engine)
        return
    if DEVICE == "cpu" and not asked.tiny:
        parser.error("needs a GPU; without one only --tiny runs, whose times mean nothing")
    began = time.monotonic()
    rows: list[dict[str, Any]] = []
    document = {
        "device": torch.cuda.get_device_name() if DEVICE == "cuda" else DEVICE,
        "tiny": asked.tiny,
        "torch": torch.__version__,
        "transformers": hf.__version__,
        "rows": rows,
    }
    given = {"rounds": asked.rounds, "blocks": asked.blocks, "engine": asked.engine}
    given |= {"tiny": asked.tiny, "quick": asked.quick}
    for name, job in jobs(asked.gpu, **given).items():
        if asked.only not in name or time.monotonic() - began > asked.seconds:
            continue
        try:
            rows.append(job())
            show({"rows": rows[-1:]})
        except Exception:
            print(f"{name}: {traceback.format_exc()[-2500:]}", flush=True)
        if asked.out is not None:
            asked.out.write_text(json.dumps(document, indent=1))
    print()
    show(document)


if __name__ == "__main__":
    main()

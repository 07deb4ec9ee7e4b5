"""Is a pruned model faster in PyTorch? Hugging Face's code, `sparsify`, torch.compile, CUDA graphs.

    python -m benchmarks.pytorch.models [--cases operators,products,bert-75,...] [--quick] [--out FILE.json]

Each case checks the output against the dense model with the same zeros, then times one forward pass, in turn
and with rests: dense eagerly, in a CUDA graph, and compiled in a CUDA graph (there with fused Q/K/V and
gate/up, as a careful user has it), without and with launches that overlap (torch's `triton.enable_pdl`);
sparse likewise. Attention is that of torch without a mask on both sides, decoding starts from the same cache in
each variant. Graphs are enqueued behind a busy GPU, as in a loop of replays. The table comes last; its
speedup is the best dense over the best sparse. Needs the GPU that --gpu names.
"""

import argparse
import json
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.pytorch.model_cases import Case, Forward, fuse_dense, model_cases
from benchmarks.pytorch.operators import check_operators, time_products
from benchmarks.pytorch.timing import captured, error, kernels_us, times_us
from prunecast.torch import sparsify

PATTERN = "tile-wise:128"
VARIANTS = tuple(
    f"{kind} {how}" for kind in ("dense", "sparse") for how in ("eager", "graph", "compiled", "overlapped")
)
"""How a model runs: overlapped is compiled with programmatic dependent launch."""
COMPILED = ("compiled", "overlapped")
MOST_SHOWN = 14
QUICK = ("operators", "llama-2048", "bert-75")


@torch.no_grad()
def run_case(case: Case, gpu: str, rounds: int, dtype: torch.dtype) -> dict[str, Any]:
    """One row of the table."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    plain, fused, sparse = (new_model(case, dtype) for _ in range(3))
    done = sparsify(
        sparse,
        PATTERN,
        gpu=gpu,
        max_tokens=case.max_tokens,
        sparsity=case.sparsity,
        few_tokens="-1" in case.name,
    )
    state = sparse.state_dict()
    plain.load_state_dict(state)
    fused.load_state_dict(state)
    del state
    fuse_dense(fused)
    mib = [round(each / 2**20) for each in (done.bytes_before, done.bytes_after)]
    row: dict[str, Any] = {"case": case.name, "pack_s": done.seconds, "mib": mib, "error": {}, "refused": {}}
    variants: dict[str, Forward] = {}
    wanted = case.call(plain)().clone()
    for name, model in (("dense", plain), ("sparse", sparse)):
        forward = case.call(model)
        attempt(row, variants, f"{name} eager", lambda forward=forward: forward)
        attempt(row, variants, f"{name} graph", lambda forward=forward: captured(forward))
    for how, overlap in (("compiled", False), ("overlapped", True)):
        torch._dynamo.reset()
        with torch._inductor.config.patch({"triton.enable_pdl": overlap}):
            for name, model in (("dense", fused), ("sparse", sparse)):
                made = torch.compile(model)
                attempt(row, variants, f"{name} {how}", lambda made=made: captured(case.call(made)))
    for name, forward in variants.items():
        row["error"][name] = error(forward(), wanted)
    row["us"] = times_us(variants, rounds)
    row["kernels_us"] = {name: kernels_us(variants[name]) for name in variants if name.endswith(COMPILED)}
    return row


def new_model(case: Case, dtype: torch.dtype) -> nn.Module:
    with torch.device("cuda"):
        return case.make().to(dtype).eval()


def attempt(
    row: dict[str, Any], variants: dict[str, Forward], name: str, make: Callable[[], Forward]
) -> None:
    """A variant, or why there is none."""
    start = time.monotonic()
    try:
        found = make()
        found()
        torch.cuda.synchronize()
        variants[name] = found
        print(f"  {name}: {time.monotonic() - start:.1f} s", flush=True)
    except Exception as refused:
        row["refused"][name] = f"{type(refused).__name__}: {str(refused)[:300]}"
        print(f"  {name}: {traceback.format_exc()[-1500:]}", flush=True)


def show_products(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        times = "  ".join(f"{each} {row[each]:7.1f}" for each in ("dense", "sparse", "alone"))
        ratio = f"{row['dense'] / row['sparse']:.2f}x, alone {row['dense'] / row['alone']:.2f}x"
        print(f"{row['layer']:9} {row['tokens']:5}  {times} us  {ratio}  error {row['error']:.3%}")


def show_models(rows: list[dict[str, Any]]) -> None:
    print("\n" + " | ".join(("case", *VARIANTS, "speedup", "eager", "error", "pack s", "MiB")))
    for row in rows:
        us = row["us"]
        best = {
            kind: min(t for name, t in us.items() if name.startswith(kind)) for kind in ("dense", "sparse")
        }
        cells = [f"{us[name]:.0f}" if name in us else "-" for name in VARIANTS]
        eager = us["dense eager"] / us["sparse eager"] if "sparse eager" in us else float("nan")
        worst = max(row["error"].values())
        speedup = best["dense"] / best["sparse"]
        numbers = (f"{speedup:.2f}", f"{eager:.2f}", f"{worst:.2%}", f"{row['pack_s']:.1f}", f"{row['mib']}")
        print(" | ".join((row["case"], *cells, *numbers)))
        for name, why in row["refused"].items():
            print(f"    {name}: {why[:160]}")


def show_kernels(row: dict[str, Any]) -> None:
    print(json.dumps(row["us"]))
    for name, kernels in row["kernels_us"].items():
        print(f"  {name}: {sum(kernels.values()):.0f} us in kernels")
        for kernel, us in list(kernels.items())[:MOST_SHOWN]:
            print(f"    {us:8.1f} us  {kernel[:90]}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--gpu", default="h200-sxm")
    parser.add_argument("--cases", default="", help="joined by commas")
    parser.add_argument("--blocks", type=int, default=2, help="of Llama")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--quick", action="store_true", help=", ".join(QUICK))
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    cases = model_cases(asked.blocks)
    wanted = (
        QUICK if asked.quick else asked.cases.split(",") if asked.cases else ("operators", "products", *cases)
    )
    dtype = torch.bfloat16 if asked.bf16 else torch.float16
    head = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "dtype": str(dtype)}
    document: dict[str, Any] = {**head, "models": [], "products": []}
    for name in wanted:
        start = time.monotonic()
        try:
            if name == "operators":
                document[name] = check_operators(asked.gpu)
            elif name == "products":
                document[name] = time_products(asked.gpu, asked.rounds)
            else:
                document["models"].append(run_case(cases[name], asked.gpu, asked.rounds, dtype))
                show_kernels(document["models"][-1])
        except Exception:
            print(traceback.format_exc()[-3000:], flush=True)
        torch.cuda.empty_cache()
        print(f"{name}: {time.monotonic() - start:.0f} s", flush=True)
        if asked.out is not None:
            asked.out.write_text(json.dumps(document, indent=1))
    show_products(document["products"])
    show_models(document["models"])


if __name__ == "__main__":
    main()

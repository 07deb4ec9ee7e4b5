"""Is a pruned model faster in PyTorch? Hugging Face's code, `sparsify`, torch.compile, CUDA graphs.

    python -m benchmarks.pytorch.models [--set judged] [--only TEXT] [--variants TEXT] [--out F.json]

    judged     the models that the documentation shows, by which predictions of whole models are judged
    fitted     other sizes of the same models, to which costs of attention and element-wise kernels are fitted
    operators  is `prunecast::linear` right?

What is measured: `prunecast.validation.torch_models.measure`. The table comes last; its speedup is the best
dense over the best sparse. Needs the GPU that --gpu names.
"""

import argparse
import json
import time
import traceback
from pathlib import Path
from typing import Any

import torch

from benchmarks.pytorch.operators import check_operators
from prunecast.validation.torch_models import ModelCase
from prunecast.validation.torch_models.measure import VARIANTS, measure
from prunecast.workload.graph.shapes import Pass, parse_workload

MOST_SHOWN = 14


def _case(model: str, run: str, sparsity: float = 0.75, blocks: int | None = None) -> ModelCase:
    """`run` is a workload, or BxT for B sequences of T tokens."""
    if ":" in run:
        return ModelCase(model, parse_workload(run)[0], sparsity, blocks=blocks)
    batch, tokens = run.split("x")
    return ModelCase(model, Pass(int(batch), int(tokens), label=run), sparsity, blocks=blocks)


SETS = {
    "judged": (
        _case("llama-2-7b", "prefill:2048", blocks=4),
        _case("bert-base", "32x128"),
        _case("llama-2-7b", "decode:1@1024", blocks=4),
        _case("llama-2-7b", "decode:16@1024", blocks=4),
        _case("vit-large-16", "32x197"),
        _case("llama-2-7b", "prefill:2048", 0.5, blocks=4),
        _case("bert-base", "32x128", 0.9),
    ),
    "fitted": (
        _case("bert-base", "16x512"),
        _case("llama-2-7b", "prefill:2x1024", 0.6, blocks=2),
        _case("llama-3-8b", "decode:4@2048", blocks=2),
        _case("vit-large-16", "8x197"),
        _case("bert-large", "8x256", blocks=6),
        _case("llama-2-7b", "prefill:4096", 0.8, blocks=2),
        _case("llama-2-7b", "decode:32@512", 0.75, blocks=2),
        _case("bert-base", "64x128", 0.6, blocks=6),
        _case("llama-3-8b", "prefill:1024", blocks=2),
        _case("gpt2", "8x512"),
    ),
}


def show_models(rows: list[dict[str, Any]]) -> None:
    print("\n" + " | ".join(("case", *VARIANTS, "speedup", "eager", "error", "pack s", "MiB")))
    for row in rows:
        us = row["us"]
        best = {
            kind: min(
                (t for name, t in us.items() if name.startswith(kind) and "zeros" not in name),
                default=float("nan"),
            )
            for kind in ("dense", "sparse")
        }
        cells = [f"{us[name]:.0f}" if name in us else "-" for name in VARIANTS]
        eager = us.get("dense eager", float("nan")) / us.get("sparse eager", float("nan"))
        worst = max(row["error"].values())
        speedup = best["dense"] / best["sparse"]
        numbers = (f"{speedup:.2f}", f"{eager:.2f}", f"{worst:.2%}", f"{row['pack_s']:.1f}", f"{row['mib']}")
        print(" | ".join((row["case"], *cells, *numbers)))
        for name, why in row["refused"].items():
            print(f"    {name}: {why[:160]}")


def show_kernels(row: dict[str, Any]) -> None:
    print(json.dumps(row["us"]))
    for name, trace in row["traces"].items():
        print(f"  {name}: {trace['busy_us']:.0f} us busy of {trace['span_us']:.0f}")
        for kernel, launches, us in trace["kernels"][:MOST_SHOWN]:
            print(f"    {us:8.1f} us {launches:6.1f}  {kernel[:90]}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--gpu", default="h200-sxm")
    parser.add_argument("--set", default="judged", choices=(*SETS, "operators"))
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--variants", default="", help="those whose name holds this, such as eager")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--seconds", type=float, default=540.0, help="begin no case after so many")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    began = time.monotonic()
    dtype = torch.bfloat16 if asked.bf16 else torch.float16
    document: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "dtype": str(dtype),
    }
    if asked.set == "operators":
        document["operators"] = check_operators(asked.gpu)
    rows = document["models"] = []
    for case in SETS.get(asked.set, ()):
        if asked.only not in case.name or time.monotonic() - began > asked.seconds:
            continue
        start = time.monotonic()
        try:
            variants = tuple(name for name in VARIANTS if asked.variants in name)
            rows.append(measure(case, asked.gpu, rounds=asked.rounds, dtype=dtype, variants=variants))
            show_kernels(rows[-1])
        except Exception:
            print(traceback.format_exc()[-3000:], flush=True)
        print(f"{case.name}: {time.monotonic() - start:.0f} s", flush=True)
        if asked.out is not None:
            asked.out.write_text(json.dumps(document, indent=1))
    show_models(rows)
    if asked.out is not None:
        asked.out.write_text(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()

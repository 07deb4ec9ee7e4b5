"""How much faster are pruned experts of a mixture, and is each expert's output right?

    python -m benchmarks.pytorch.experts [--only TEXT] [--gpu NAME] [--rounds N] [--compile] [--out F.json]
        [--tiny]
    python -m benchmarks.pytorch.experts --predict

Experts of Mixtral and of Qwen3-30B-A3B with random weights, 75 % removed in tiles of 128 rows, for a prompt
of 4096 tokens and for decoding of 16 sequences. Every expert's output is compared with fp32 before anything
is timed, and `sparsify` is tried on small experts: eager, compiled whole, and in a CUDA graph. Dense experts
are the best of transformers' grouped product and of the same with less around it: one sort,
`torch._grouped_mm`, a gated unit, a sum; each eager, in a CUDA graph, and with `--compile` compiled in a
graph. No fused kernel of Triton is compared: torch and transformers have none. Each row ends with the
predicted time.
`--tiny` runs small experts on a CPU: a test that it runs. `--predict` needs no GPU.
"""

import argparse
import json
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers as hf
from torch import nn

from benchmarks.pytorch.cases import DEVICE
from prunecast.hardware import GpuSpec, load_gpu
from prunecast.models import estimate
from prunecast.patterns import TileMap
from prunecast.torch import sparsify
from prunecast.torch.experts import PARTS, ExpertMatrix, SparseExperts
from prunecast.torch.layer_plans import ExpertTokens, expert_layouts, expert_plans
from prunecast.torch.packed import PackedProduct
from prunecast.validation.torch_models.timing import captured, times_us, traced
from prunecast.workload.graph.model_graph import Operation
from prunecast.workload.graph.runtimes import torch_seconds

HEIGHT, SPARSITY, DTYPE = 128, 0.75, torch.bfloat16
TRACED = ("sparse graph", "dense short graph", "dense short compiled graph")
MOST_ERROR = 1.2e-2
"""Error of an expert's output over its size: gate, up, unit and output are rounded to bf16."""
EXPERT_MODULES = {
    "mixtral": hf.models.mixtral.modeling_mixtral.MixtralExperts,
    "qwen3_moe": hf.models.qwen3_moe.modeling_qwen3_moe.Qwen3MoeExperts,
}


class Case(NamedTuple):
    """A layer of experts and the tokens of a call."""

    name: str
    kind: str
    experts: int
    per_token: int
    hidden: int
    width: int
    tokens: int

    @property
    def sizes(self) -> ExpertTokens:
        """Tokens and experts."""
        return ExpertTokens(self.tokens, self.per_token, self.experts)

    @property
    def shapes(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Outputs and inputs of gate and up, and of down."""
        return (2 * self.width, self.hidden), (self.hidden, self.width)


MIXTRAL, QWEN3 = ("mixtral", 8, 2, 4096, 14336), ("qwen3_moe", 128, 8, 2048, 768)
CASES = (
    Case("Qwen3-30B-A3B, 4096 tokens", *QWEN3, 4096),
    Case("Qwen3-30B-A3B, decode of 16", *QWEN3, 16),
    Case("Mixtral, 4096 tokens", *MIXTRAL, 4096),
    Case("Mixtral, decode of 16", *MIXTRAL, 16),
)
TINY = (
    Case("tiny, 80 tokens", "mixtral", 5, 2, 256, 128, 80),
    Case("tiny, 3 tokens", "mixtral", 5, 2, 256, 128, 3),
)


def drawn_tiles(experts: int, m: int, k: int) -> TileMap:
    """Return tiles of all experts with random columns; their number varies as where weights are random."""
    count = experts * m // HEIGHT
    kept = np.random.default_rng(0).random((count, k)) < 1.0 - SPARSITY
    return TileMap(
        m=experts * m,
        k=k,
        row_start=np.arange(count + 1) * HEIGHT,
        row_index=np.arange(experts * m),
        column_start=np.concatenate(([0], np.cumsum(kept.sum(1)))),
        column_index=np.nonzero(kept)[1],
        pattern=f"tile-wise:{HEIGHT}",
    )


class Experts(NamedTuple):
    """The same experts pruned and dense with the zeros."""

    sparse: SparseExperts
    dense: nn.Module


def dense_module(case: Case, dtype: torch.dtype = DTYPE) -> nn.Module:
    """Return random experts of transformers on the device."""
    config = hf.AutoConfig.for_model(case.kind)
    config.hidden_size, config.num_experts_per_tok = case.hidden, case.per_token
    config.intermediate_size = config.moe_intermediate_size = case.width
    config.num_experts = config.num_local_experts = case.experts
    config._experts_implementation = "grouped_mm"
    with torch.device(DEVICE):
        dense = EXPERT_MODULES[case.kind](config).to(dtype).eval()
    for name, (_, k) in zip(PARTS, case.shapes, strict=True):
        weight = getattr(dense, name).detach()
        weight.copy_(torch.randn(weight.shape, device=DEVICE, dtype=dtype) * k**-0.5)
    return dense


def make_experts(case: Case, gpu: GpuSpec) -> Experts:
    """Return random experts on the device."""
    dense, parts = dense_module(case), []
    for name, (m, k) in zip(PARTS, case.shapes, strict=True):
        tiles = drawn_tiles(case.experts, m, k)
        weight = getattr(dense, name).detach()
        kept = torch.zeros((tiles.tile_count, k), dtype=torch.bool)
        tile = np.repeat(np.arange(tiles.tile_count), tiles.kept_per_tile)
        kept[torch.from_numpy(tile), torch.from_numpy(tiles.column_index.astype(np.int64))] = True
        weight.view(tiles.tile_count, HEIGHT, k).mul_(kept.to(DEVICE)[:, None])
        layouts = expert_layouts(tiles, "bf16", gpu, case.sizes, few_tokens=True)
        product = PackedProduct(
            weight.flatten(0, 1), tiles, None, gpu=gpu, max_tokens=case.tokens, layouts=layouts
        )
        parts.append(ExpertMatrix(product, tiles.pattern, tuple(weight.shape)))
    return Experts(SparseExperts(dense, *parts), dense)


class Routed(NamedTuple):
    """Tokens and what a router chose at random."""

    x: torch.Tensor
    chosen: torch.Tensor
    shares: torch.Tensor


def route(case: Case) -> Routed:
    """Return random tokens with different experts and weights that sum to 1."""
    x = torch.randn(case.tokens, case.hidden, device=DEVICE).to(DTYPE)
    shares, chosen = torch.randn(case.tokens, case.experts, device=DEVICE).topk(case.per_token)
    return Routed(x, chosen, shares.softmax(-1).to(DTYPE))


@torch.no_grad()
def wrong_experts(case: Case, made: Experts, given: Routed) -> tuple[float, list[int]]:
    """Return the largest error of an expert's output against fp32, and the experts that are wrong."""
    worst, wrong = 0.0, []
    for expert in range(case.experts):
        token, place = torch.where(given.chosen == expert)
        alone = torch.where(given.chosen == expert, given.shares, 0)
        y = made.sparse(given.x, given.chosen, alone).float()
        gate_up, down = (getattr(made.dense, name)[expert].float() for name in PARTS)
        gate, up = (given.x[token].float() @ gate_up.t()).chunk(2, -1)
        wanted = (nn.functional.silu(gate) * up) @ down.t() * given.shares[token, place, None].float()
        others = torch.ones(case.tokens, dtype=torch.bool, device=DEVICE)
        others[token] = False
        off = float((y[token] - wanted).norm() / wanted.norm()) if len(token) else 0.0
        if not off < MOST_ERROR or bool(y[others].any()):
            wrong.append(expert)
        worst = max(worst, off)
    return worst, wrong


@torch.no_grad()
def check_sparsify(gpu: str) -> list[str]:
    """Return the calls of small sparse experts that give something else than dense ones with their zeros."""
    wrong = []
    for dtype in (torch.float16, torch.bfloat16):
        case = TINY[0]._replace(width=256)
        model = nn.ModuleDict({"experts": dense_module(case, dtype)})
        zeros = nn.ModuleDict({"experts": dense_module(case, dtype)})
        done = sparsify(model, "tile-wise:64", sparsity=0.6, gpu=gpu, max_tokens=256, quiet=True)
        if len(done.layers) != len(PARTS):
            wrong.append(f"{dtype}: {done.left}")
            continue
        zeros.load_state_dict(model.state_dict())
        sparse, dense = model["experts"], zeros["experts"].float()
        compiled = torch.compile(sparse, fullgraph=True, backend="aot_eager", dynamic=True)
        for tokens in (256, 1, 9, 64, 65, 200):
            x, chosen, shares = route(case._replace(tokens=tokens))
            given = x.to(dtype), chosen, shares.to(dtype)
            wanted = dense(given[0].float(), chosen, given[2].float())
            replay = captured(partial(sparse, *given))
            for way, y in (
                ("eager", sparse(*given)),
                ("compiled", compiled(*given)),
                ("graph", replay()),
            ):
                off = float((y.float() - wanted).norm() / wanted.norm())
                if not off < MOST_ERROR:
                    wrong.append(f"{dtype}, {tokens} tokens, {way}: {off:.3g}")
    print(f"sparsify: {len(wrong)} wrong", *wrong[:10], sep="\n  ", flush=True)
    return wrong


def short_dense(
    dense: nn.Module, x: torch.Tensor, chosen: torch.Tensor, shares: torch.Tensor
) -> torch.Tensor:
    """Return the output of dense experts with as little around torch's grouped product as it needs."""
    per_token, experts = chosen.shape[1], len(dense.gate_up_proj)
    expert, order = chosen.flatten().to(torch.int32).sort()
    last = torch.arange(experts, device=x.device, dtype=torch.int32)
    ends = torch.searchsorted(expert, last, right=True, out_int32=True)
    wide = torch._grouped_mm(x[order // per_token], dense.gate_up_proj.transpose(-2, -1), offs=ends)
    gate, up = wide.chunk(2, -1)
    y = torch._grouped_mm(nn.functional.silu(gate) * up, dense.down_proj.transpose(-2, -1), offs=ends)
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order), device=x.device)
    return (y[place].view(len(x), per_token, -1) * shares[..., None]).sum(1)


@torch.no_grad()
def measure(case: Case, gpu: GpuSpec, rounds: int, *, compiles: bool) -> dict[str, Any]:
    """Return errors, times in us by variant, the kernels of the sparse call, and the prediction."""
    torch.manual_seed(0)
    began, given = time.monotonic(), route(case)
    made = make_experts(case, gpu)
    row: dict[str, Any] = {"case": case.name, "device": DEVICE, "refused": {}, "us": {}}
    row["error"], row["wrong"] = wrong_experts(case, made, given)
    print(f"{case.name}: error {row['error']:.2%}, wrong experts {row['wrong']}", flush=True)
    if row["wrong"]:
        return row
    forms: dict[str, Callable[[], torch.Tensor]] = {
        "sparse": lambda: made.sparse(*given),
        "dense transformers": lambda: made.dense(*given),
        "dense short": lambda: short_dense(made.dense, *given),
    }
    if compiles:
        torch._dynamo.reset()  # of other sizes, so that these are not dynamic
        short = torch.compile(short_dense)
        forms["dense short compiled"] = lambda: short(made.dense, *given)
    variants: dict[str, Callable[[], torch.Tensor]] = {}
    for name, forward in forms.items():
        try:
            variants[f"{name} eager"], variants[f"{name} graph"] = forward, captured(forward)
        except Exception as reason:  # what torch refuses is a line of the record
            row["refused"][name] = f"{type(reason).__name__}: {str(reason)[:300]}"
            print(traceback.format_exc()[-800:], flush=True)
    row["us"] = times_us(variants, rounds)
    if DEVICE == "cuda":
        for name in TRACED:
            if name in variants:
                row[f"trace {name}"] = traced(variants[name]).record()
    row["predicted_us"] = predicted_us(case, gpu)
    row["seconds"] = time.monotonic() - began
    return row


def predicted_us(case: Case, gpu: GpuSpec) -> dict[str, float]:
    """Return the predicted time of each launch of a sparse call in us, and of all together."""
    maps = [drawn_tiles(case.experts, m, k) for m, k in case.shapes]
    layouts = [expert_layouts(tiles, "bf16", gpu, case.sizes, few_tokens=True) for tiles in maps]
    plans = [plan for plan, _ in expert_plans(maps, case.sizes, "bf16", gpu, layouts)]
    places = case.tokens * case.per_token
    moved = {
        "expert sort": (places * case.hidden, places * case.hidden),
        "expert unit": (2 * places * case.width, places * case.width),
        "expert sum": (places * case.hidden, case.tokens * case.hidden),
    }
    found = {name: estimate(plan, gpu).seconds for name, plan in zip(PARTS, plans, strict=True)}
    for kind, (read, written) in moved.items():
        around = Operation(name=kind, kind=kind, elements_in=read, elements_out=written)
        found[kind] = torch_seconds(around, gpu)
    us = {name: 1e6 * seconds for name, seconds in found.items()}
    return {**us, "all": sum(us.values())}


def show(rows: list[dict[str, Any]]) -> None:
    """Print a line for each case: best dense, sparse, speedup, predicted, error."""
    for row in rows:
        best = {
            kind: min(
                ((us, name) for name, us in row["us"].items() if name.startswith(kind)), default=(0.0, "none")
            )
            for kind in ("dense", "sparse")
        }
        (dense, by), (sparse, way) = best["dense"], best["sparse"]
        ratio = f"{dense / sparse:.2f}x" if sparse else "not timed"
        predicted = f"predicted {row.get('predicted_us', {}).get('all', 0.0):.0f} us"
        print(
            f"{row['case']} | {by} {dense:.0f} us | {way} {sparse:.0f} us | {ratio} | {predicted}"
            f" | error {row['error']:.2%}, wrong experts {len(row['wrong'])} | {row.get('seconds', 0):.0f} s"
        )
        print(
            "    "
            + ", ".join(f"{name} {us:.0f}" for name, us in sorted(row["us"].items(), key=lambda e: e[1]))
        )
        for name in TRACED:
            for kernel, launches, us in row.get(f"trace {name}", {}).get("kernels", [])[:12]:
                print(f"        {name} {us:8.1f} us {launches:g} x {kernel}")
        for name, why in row["refused"].items():
            print(f"    {name}: {why[:200]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--gpu", default="h200-sxm")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--predict", action="store_true")
    asked = parser.parse_args()
    if DEVICE == "cpu" and not (asked.tiny or asked.predict):
        parser.error("full sizes: needs a GPU, got none; --tiny runs small experts on a CPU")
    gpu, rows = load_gpu(asked.gpu), []
    if not asked.predict and not asked.only:
        check_sparsify(asked.gpu)
    for case in TINY if asked.tiny else CASES:
        if asked.only not in case.name:
            continue
        if asked.predict:
            print(case.name, {name: round(us, 1) for name, us in predicted_us(case, gpu).items()})
            continue
        rows.append(measure(case, gpu, asked.rounds, compiles=asked.compile))
        if asked.out is not None:
            asked.out.write_text(json.dumps({"rows": rows}, indent=1), encoding="utf-8")
        if DEVICE == "cuda":
            torch.cuda.empty_cache()
    show(rows)


if __name__ == "__main__":
    main()

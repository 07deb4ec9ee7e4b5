"""Models pruned to a latency share, and their plans.

Every model is pruned to the lowest of `SHARES` of its dense time that is above its floor. Predictions are
those of the search, made before the run.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.suite import build_all
from benchmarks.tile.cases import GPU
from prunecast.choice import fastest_plan
from prunecast.codesign.search import TargetResult, Targets
from prunecast.codesign.search.model_search import ModelSearch
from prunecast.codesign.search.option_times import OptionTimes
from prunecast.codesign.search.prune_model import masks_of, search_of
from prunecast.codesign.search.target import prune_to_targets
from prunecast.errors import BadInput
from prunecast.kernels import KernelPlan
from prunecast.patterns import parse_pattern

BATCH = 8
"""As of `prunecast prune`."""
SHARES = (0.6, 0.65, 0.7, 0.75, 0.8)
BUNDLED = Path(__file__).parents[2] / "examples" / "stdlib_lm" / "weights.safetensors"


class Model(NamedTuple):
    """What is pruned, as on the command line."""

    name: str
    source: str
    tokens: int | None = None
    target: tuple[str, ...] = ()


MODELS = (
    Model("bert-base", "bert-base"),
    Model("stdlib_lm feed-forward, 32768 tokens", str(BUNDLED), 32768, ("re:ffn",)),
)


class Reached(NamedTuple):
    """The lowest share of the dense time that could be reached."""

    share: float
    result: TargetResult
    refused: str
    """What was said about the share below it, if anything."""


def _prepared(model: Model) -> tuple[dict[str, Any], list[KernelPlan]]:
    """What the JSON file says of a model, and the distinct plans of its pruned layers."""
    began = time.perf_counter()
    search = _search(model)
    reached = _reach(search)
    result, masks = reached.result, masks_of(search, reached.result)
    plans: dict[str, KernelPlan] = {}
    layers = []
    for layer in result.layers:
        row = {**layer.row(), "plan": None}
        if layer.pattern != "dense":
            kept = parse_pattern(layer.pattern).map(masks[layer.layer])
            plan = fastest_plan(layer.kernel, kept, n=row["n"], dtype="fp16", gpu=GPU)
            _check_prediction(search, plan, layer.seconds)
            plans[plan.fingerprint()] = plan
            row["plan"] = plan.fingerprint()
        layers.append(row)
    entry = {
        "name": model.name,
        "source": Path(model.source).name,
        "gpu": GPU.name,
        "spec_hash": GPU.fingerprint,
        "engine": search.engine.name,
        "asked": reached.share,
        "refused": reached.refused,
        "seconds": result.seconds,
        "dense_seconds": result.dense_seconds,
        "retained_importance": result.retained_importance,
        "sparsity": result.sparsity,
        "layers": [*layers, *_unpruned(search)],
    }
    print(
        f"{model.name}: {result.seconds / result.dense_seconds:.1%} of dense, asked for {reached.share:.0%};"
        f" {len(plans)} plans, {time.perf_counter() - began:.0f} s",
        flush=True,
    )
    return entry, list(plans.values())


def _search(model: Model) -> ModelSearch:
    search = search_of(model.source, gpu=GPU, tokens=model.tokens, batch=BATCH, target=model.target)
    search.prepare()
    return search


def _reach(search: ModelSearch) -> Reached:
    refused = ""
    for share in SHARES:
        try:
            return Reached(share, prune_to_targets(search, Targets(latency_share=share)), refused)
        except BadInput as reason:
            refused = f"{share:.0%}: {reason}"
            print(f"refused: {refused}", flush=True)
    raise BadInput(f"no share up to {SHARES[-1]:.0%} can be reached; {refused}")


def _check_prediction(search: ModelSearch, plan: KernelPlan, seconds: float) -> None:
    again = search.engine.run(plan).seconds
    if abs(again / seconds - 1.0) > 1e-9:
        raise BadInput(f"{plan.fingerprint()}: the search said {seconds:.3e} s, its plan takes {again:.3e} s")


def _unpruned(search: ModelSearch) -> list[dict[str, Any]]:
    """Products of the model that are never pruned, as dense layers."""
    times = OptionTimes(engine=search.engine, dtype="fp16")
    found = []
    (run,) = search.layers.passes
    products = {} if run.graph is None else run.graph.products
    fixed = {name: (p.m, p.k, p.n) for name, p in products.items() if name not in search.layers.shapes}
    for name, (m, k, n) in fixed.items():
        seconds = times.dense(m, k, n)
        sizes = {"layer": name, "m": m, "k": k, "n": n, "pattern": "dense", "kernel": "dense"}
        found.append({**sizes, "removed": 0.0, "seconds": seconds, "dense_seconds": seconds, "plan": None})
    return found


def prepare(words: Sequence[str]) -> tuple[list[dict[str, Any]], dict[str, KernelPlan]]:
    """Models whose names have one of the words, and their plans, compiled, by fingerprint."""
    models: list[dict[str, Any]] = []
    plans: dict[str, KernelPlan] = {}
    for model in (model for model in MODELS if any(word in model.name for word in words)):
        entry, own = _prepared(model)
        models.append(entry)
        plans |= {plan.fingerprint(): plan for plan in own}
    build_all(plans.values())
    return models, plans

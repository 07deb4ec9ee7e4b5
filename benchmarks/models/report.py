"""Tables of a record of pruned models; needs no GPU."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["predict_again", "print_record"]

WANTED = 0.07
"""Largest distance of a measured model from its prediction."""


class Total(NamedTuple):
    """Seconds of several products."""

    predicted: float
    measured: float

    @property
    def ratio(self) -> float:
        """Measured over predicted."""
        return self.measured / self.predicted


def totals_of(model: dict[str, Any]) -> dict[str, Total]:
    """Sums over layers: those that are pruned, the same dense, and all products of the model."""
    layers = [layer for layer in model["layers"] if layer.get("measured")]
    pruned = [layer for layer in layers if layer["plan"]]
    return {
        "pruned layers": _total(pruned, "seconds", "measured"),
        "the same, dense": _total(pruned, "dense_seconds", "dense_measured"),
        "all products": _total(layers, "seconds", "measured"),
        "all products, dense": _total(layers, "dense_seconds", "dense_measured"),
    }


def _total(layers: Iterable[dict[str, Any]], predicted: str, measured: str) -> Total:
    pairs = [(layer[predicted], layer[measured]) for layer in layers]
    return Total(sum(p for p, _ in pairs), sum(m for _, m in pairs))


def print_record(record: dict[str, Any]) -> None:
    """Layers, shapes, then totals of every model."""
    checks = record["checks"]
    print(f"\n{record['device']['nvidia-smi']}")
    for model in record["models"]:
        print(f"\n{model['name']}: predicted / measured us, pruned and dense")
        print("\n".join(map(_line, model["layers"])))
    print(f"\nchecks: {sum(c['passes'] for c in checks)} of {len(checks)} right")
    for model in record["models"]:
        _print_totals(model)


def _line(layer: dict[str, Any]) -> str:
    size = f"{layer['m']}x{layer['k']}x{layer['n']}"
    what = f"{layer['layer'][-20:]:<20} {size:<14} {layer['pattern']:<15} {layer['removed']:4.0%}"
    if not layer.get("measured"):
        return f"{what} WRONG"
    clock = f" {layer['clock_mhz']:.0f} MHz" if layer.get("clock_mhz") else ""
    return (
        f"{what} {_pair(Total(layer['seconds'], layer['measured']))}"
        f" | {_pair(Total(layer['dense_seconds'], layer['dense_measured']))} {layer['dense_layout']}{clock}"
    )


def _pair(total: Total) -> str:
    return f"{total.predicted * 1e6:6.1f} {total.measured * 1e6:6.1f} {total.ratio - 1.0:+5.0%}"


def _print_totals(model: dict[str, Any]) -> None:
    layers = model["layers"]
    share = model["seconds"] / model["dense_seconds"]
    print(f"\n{model['name']}: asked for {model['asked']:.0%} of dense, predicted {share:.1%}")
    if model["refused"]:
        print(f"  refused {model['refused']}")
    for shape in dict.fromkeys((layer["m"], layer["k"], layer["n"]) for layer in layers):
        own = [layer for layer in layers if layer.get("measured")]
        own = [layer for layer in own if (layer["m"], layer["k"], layer["n"]) == shape]
        for kernel in dict.fromkeys(layer["kernel"] for layer in own):
            of_kernel = [layer for layer in own if layer["kernel"] == kernel]
            _print_group(f"{'x'.join(map(str, shape))} {kernel}", of_kernel)
    totals = totals_of(model)
    whole_model_is_pruned = all(layer["plan"] for layer in layers)
    for name, total in totals.items():
        if not (whole_model_is_pruned and name.startswith("all")):
            _print_total(name, total)
    together = model.get("together", {})
    if "pruned" in together:
        _print_total("in one graph", Total(totals["all products"].predicted, together["pruned"]["measured"]))
        dense = Total(totals["all products, dense"].predicted, together["dense"]["measured"])
        _print_total("in one graph, dense", dense)
    outside, dense_outside = _outside(model)
    pruned, dense = totals["all products"], totals["all products, dense"]
    whole = Total(model["seconds"], pruned.measured + outside)
    dense_whole = Total(model["dense_seconds"], dense.measured + dense_outside)
    if outside > 1e-9:
        print(
            f"  {outside * 1e6:.1f} us outside of products (dense: {dense_outside * 1e6:.1f}) as predicted:"
        )
        _print_total("whole model", whole)
        _print_total("whole model, dense", dense_whole)
        _print_others(model, pruned, dense)
    right = abs(whole.ratio - 1.0) <= WANTED and all(layer.get("measured") for layer in layers)
    products = totals["pruned layers"].ratio - 1.0
    print(
        f"  {whole.measured / dense_whole.measured:.1%} of dense as measured, predicted {share:.1%};"
        f" pruned layers {products:+.1%}, model {whole.ratio - 1.0:+.1%} of the prediction:"
        f" {'within' if right and abs(products) <= WANTED else 'BEYOND'} {WANTED:.0%}"
    )


def _print_others(model: dict[str, Any], pruned: Total, dense: Total) -> None:
    """Each kind of operation outside of products beside torch's, and whole models with torch's."""
    others = model.get("others")
    if not others:
        return
    print("  the same with what torch takes outside of products (one of each, in a warm L2):")
    for name, products in (("pruned", pruned), ("dense", dense)):
        kinds = {kind: of for kind, of in model["outside"][name].items() if of["count"]}
        measured = {kind: of["count"] * others[kind] for kind, of in kinds.items()}
        each = ", ".join(
            f"{of['count']} {kind} {of['seconds'] * 1e6:.0f} {measured[kind] * 1e6:.0f}"
            for kind, of in kinds.items()
        )
        predicted = sum(of["seconds"] for of in kinds.values())
        whole = Total(products.predicted + predicted, products.measured + sum(measured.values()))
        _print_total(f"whole model, {name}", whole)
        print(f"    predicted / torch us: {each}")


def _print_group(name: str, layers: list[dict[str, Any]]) -> None:
    logs = [math.log(layer["measured"] / layer["seconds"]) for layer in layers]
    mean, worst = sum(logs) / len(logs), max(logs, key=abs)
    print(
        f"  {name:<32} {len(logs):3d} layers, measured {math.expm1(mean):+6.1%} of the prediction,"
        f" worst {math.expm1(worst):+6.1%}"
    )


def _print_total(name: str, total: Total) -> None:
    print(
        f"  {name:<24} predicted {total.predicted * 1e6:8.1f} us, measured {total.measured * 1e6:8.1f} us,"
        f" {total.ratio - 1.0:+6.1%}"
    )


def _outside(model: dict[str, Any]) -> tuple[float, float]:
    """Predicted seconds outside of products, pruned and dense; zero for layers alone."""
    layers = model["layers"]
    products = sum(layer["seconds"] for layer in layers)
    return (
        model["seconds"] - products,
        model["dense_seconds"] - sum(layer["dense_seconds"] for layer in layers),
    )


def predict_again(record: dict[str, Any], prepared: Path) -> None:
    """Put the simulator's present word on the measured plans, and on dense, in place of the old one."""
    from benchmarks.on_gpu.plans import GPU, load_plans
    from prunecast.kernels import KernelPlan, plan_dense
    from prunecast.simulator import simulate

    plans, known = load_plans(prepared), dict[Any, float]()

    def seconds(key: Any, plan: KernelPlan) -> float:
        if key not in known:
            known[key] = simulate(plan, GPU).seconds
        return known[key]

    for model in record["models"]:
        outside, dense_outside = _outside(model)
        for layer in model["layers"]:
            shape, mark = (layer["m"], layer["k"], layer["n"]), layer["plan"]
            layer["dense_seconds"] = seconds(shape, plan_dense(*shape, "fp16", GPU))
            layer["seconds"] = seconds(mark, plans[mark]) if mark else layer["dense_seconds"]
        model["seconds"] = outside + sum(layer["seconds"] for layer in model["layers"])
        dense_s = sum(layer["dense_seconds"] for layer in model["layers"])
        model["dense_seconds"] = dense_outside + dense_s

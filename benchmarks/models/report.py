"""Tables of a record of pruned models; needs no GPU."""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

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
    for name, total in totals.items():
        _print_total(name, total)
    together = model.get("together", {})
    if "pruned" in together:
        _print_total("in one graph", Total(totals["all products"].predicted, together["pruned"]["measured"]))
        dense = Total(totals["all products, dense"].predicted, together["dense"]["measured"])
        _print_total("in one graph, dense", dense)
    outside, dense_outside = _outside(model)
    whole = Total(model["seconds"], totals["all products"].measured + outside)
    dense_whole = Total(model["dense_seconds"], totals["all products, dense"].measured + dense_outside)
    _print_total("whole model", whole)
    _print_total("whole model, dense", dense_whole)
    right = abs(whole.ratio - 1.0) <= WANTED and all(layer.get("measured") for layer in layers)
    products = totals["pruned layers"].ratio - 1.0
    print(
        f"  {whole.measured / dense_whole.measured:.1%} of dense as measured, predicted {share:.1%};"
        f" pruned layers {products:+.1%}, model {whole.ratio - 1.0:+.1%} of the prediction:"
        f" {'within' if right and abs(products) <= WANTED else 'BEYOND'} {WANTED:.0%}"
    )


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

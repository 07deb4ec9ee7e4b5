"""Convolutions of the tile kernel on a GPU: compared with torch, then timed in turn with cuDNN."""

import argparse
import csv
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cupy as cp
import torch
from torch.nn.functional import conv2d

from benchmarks.on_gpu.conv_cases import CUDNN, SMALL, Case, filters_of
from benchmarks.on_gpu.timing import contestant, take_turns
from prunecast.kernels import KernelPlan, compile
from prunecast.patterns import TileMap
from prunecast.torch.planes import images_in, planes_of
from prunecast.validation.measure.rotation import rotating_sets

__all__ = ["run"]

MOST_SETS = 24


def run(options: argparse.Namespace, layers: dict[Case, dict[str, KernelPlan]]) -> list[dict[str, str]]:
    """Check and time every case while time is left; rows of the record."""
    began = time.perf_counter()
    rows: list[dict[str, str]] = []
    options.out.mkdir(parents=True, exist_ok=True)
    stream = cp.cuda.Stream(non_blocking=True)
    for case, own in layers.items():
        if time.perf_counter() - began > options.seconds:
            print("out of time at", case.name)
            break
        try:
            rows.extend(_run_case(case, own, stream, options.turns))
        except Exception as reason:  # the others go on
            print(f"{case.name}: {type(reason).__name__}: {str(reason)[:300]}", flush=True)
        _write(options.out / "convolutions.csv", rows)
    return rows


def _write(file: Path, rows: list[dict[str, str]]) -> None:
    with file.open("w", newline="") as lines:
        table = csv.DictWriter(lines, ("case", "tiles", "config", "chosen", "us"), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def _run_case(case: Case, plans: dict[str, KernelPlan], stream: Any, turns: int) -> list[dict[str, str]]:
    with stream, torch.cuda.stream(torch.cuda.ExternalStream(stream.ptr)), torch.no_grad():
        layer = _Layer(case)
        operators = {name: layer.checked(plan) for name, plan in plans.items()}
        wrong = {name: excess for name, excess in layer.excess.items() if not excess <= 1.0} or "none"
        worst = max(layer.excess.values())
        print(
            f"{case.name}: {len(operators)} checked, worst {worst:.2f} of the bound, wrong {wrong}",
            flush=True,
        )
        return [] if case in SMALL else _times(layer, operators, stream, turns)


class _Layer:
    """A layer's input, filters and output by torch."""

    def __init__(self, case: Case) -> None:
        self.case, self.excess = case, {}
        shape = (case.batch, case.channels, case.size, case.size)
        torch.manual_seed(1)
        moved = 2 * (case.batch * case.size**2 * case.channels + case.grid.conv.n * case.filters)
        self.sets = rotating_sets(moved, most=MOST_SETS) if case not in SMALL else 1
        self.xs = [torch.randn(shape, device="cuda").half() for _ in range(self.sets)]
        self.padding = case.kernel // 2
        self._wanted: dict[bytes, Any] = {}

    def weight(self, tiles: TileMap) -> Any:
        """Filters with what is pruned set to zero."""
        kept = torch.from_numpy(filters_of(self.case) * tiles.mask()).cuda()
        return kept.view(self.case.filters, self.case.channels, self.case.kernel, self.case.kernel)

    def checked(self, plan: KernelPlan) -> Any:
        """The operator of a plan; how far it is from torch goes to `excess`."""
        case, grid = self.case, self.case.grid
        operator: Any = compile(plan, filters_of(case))
        source = planes_of(self.xs[0], case.batch, grid.border)
        shape = (operator.output.pixels, case.batch)
        y = torch.full(shape, torch.nan, dtype=torch.float16, device="cuda")
        operator(source, out=y)
        wanted, bound = self._reference(plan)
        images = images_in(y, operator.output, case.batch)
        apart = (images.float() - wanted).abs() / bound
        expected = planes_of(images, case.batch, grid.border)
        same_zeros = torch.equal(y[: -grid.border], expected[: -grid.border])
        excess = float(torch.nan_to_num(apart, nan=torch.inf).max()) if same_zeros else float("inf")
        name = f"{plan.tensor} {plan.config} {plan.tiles.pattern}"
        self.excess[name] = excess
        return operator

    def _reference(self, plan: KernelPlan) -> tuple[Any, Any]:
        """Output in fp32, and how far fp16 with sums in fp32 may be from it."""
        key = plan.tiles.fingerprint().encode()
        if key not in self._wanted:
            torch.backends.cudnn.allow_tf32 = False
            options = {"stride": self.case.stride, "padding": self.padding}
            weight, x = self.weight(plan.tiles), self.xs[0].float()
            wanted, size = conv2d(x, weight, **options), conv2d(x.abs(), weight.abs(), **options)
            gamma = 2 * int(plan.tiles.kept_per_tile.max()) * 2.0**-23
            self._wanted = {key: (wanted, gamma * size + 2.0**-11 * (wanted.abs() + gamma * size) + 2.0**-24)}
        return self._wanted[key]


def _times(layer: _Layer, operators: dict[str, Any], stream: Any, turns: int) -> list[dict[str, str]]:
    """A row for each plan, and for each way of cuDNN."""
    sets, found = layer.sets, []
    sources = [planes_of(x, layer.case.batch, layer.case.grid.border) for x in layer.xs]
    for name, operator in operators.items():
        outs = [operator(source) for source in sources]
        own = [operator, *(operator.copy() for _ in range(sets - 1))]

        def launch(i: int, own: Any = own, outs: Any = outs) -> None:
            own[i](sources[i], out=outs[i])

        found.append(contestant(name, stream, launch, sets=sets))
    kept = next(iter(operators.values())).plan.tiles
    for layout in (torch.channels_last, torch.contiguous_format):
        found.append(_cudnn(layer, kept, layout, stream, tuned=True))
    with ThreadPoolExecutor(1) as thread:  # torch keeps a tuned choice for the thread that tuned
        for layout in (torch.channels_last, torch.contiguous_format):
            found.append(thread.submit(_cudnn, layer, kept, layout, stream, tuned=False).result())
    samples = take_turns(stream, found, turns)
    rows = []
    for name, sample in samples.items():
        plan = operators[name].plan if name in operators else None
        tiles, config = (CUDNN, name) if plan is None else (name.partition(" ")[0], str(plan.config))
        chosen = str(int(name == tiles))
        us = f"{sample.median * 1e6:.2f}"
        rows.append({"case": layer.case.name, "tiles": tiles, "config": config, "chosen": chosen, "us": us})
    return rows


def _cudnn(layer: _Layer, tiles: TileMap, layout: Any, stream: Any, *, tuned: bool) -> Any:
    weights = [layer.weight(tiles).half().to(memory_format=layout) for _ in range(layer.sets)]
    xs = [x.to(memory_format=layout) for x in layer.xs]
    external = torch.cuda.ExternalStream(stream.ptr)

    def launch(i: int) -> Any:
        torch.backends.cudnn.benchmark = tuned
        with torch.cuda.stream(external), torch.no_grad():
            return conv2d(xs[i], weights[i], stride=layer.case.stride, padding=layer.padding)

    name = "channels last" if layout is torch.channels_last else "contiguous"
    with stream:
        return contestant(f"{name}{' tuned' if tuned else ''}", stream, launch, sets=layer.sets)

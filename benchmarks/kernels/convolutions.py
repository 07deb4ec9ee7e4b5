"""Are convolutions of the tile kernel right, and how fast against cuDNN? 3x3 layers of VGG-16 and ResNet-50.

    python -m benchmarks.kernels.convolutions prepare --folder build/conv   # plans and cubins; no GPU needed
    PRUNECAST_CACHE=build/conv/cubin python -m benchmarks.kernels.convolutions run --folder build/conv \
        --out DIR [--case NAME ...] [--seconds 200] [--turns 5]

Batch 32, fp16, filters of random weights pruned to 75 % with one threshold a layer. Outputs are compared with
torch's in fp32, zeros of the border included, before any time counts. cuDNN has its own layout, channels last
and contiguous, tuned by its benchmark mode and by its heuristics; both sides add no bias, and inputs lie as
each wants them. Bursts, cold L2. `--configs` times every config of the layers, in bursts too. Writes
DIR/convolutions.json.
"""

import argparse
import json
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.on_gpu.plans import GPU, load_plans, save_plans
from prunecast.choice import fastest_plan, plan_with
from prunecast.kernels import ConvGrid, ConvShape, KernelPlan, grid_plan
from prunecast.kernels.device.build import compile_cubin
from prunecast.kernels.device.defines import ARCH
from prunecast.kernels.tile.configs import mma_configs, tile_configs
from prunecast.kernels.tile.cuda.forms import build_tile_kernel, tile_defines
from prunecast.kernels.tile.cuda.mma.forms import build_mma, mma_defines
from prunecast.patterns import TileMap, parse_pattern
from prunecast.validation.measure.sources import MICROBENCHMARKS

SPARSITY = 0.75
MOST_SETS = 24


class Case(NamedTuple):
    """A layer of square images and filters."""

    filters: int
    channels: int
    size: int
    stride: int = 1
    kernel: int = 3
    batch: int = 32
    network: str = ""

    @property
    def name(self) -> str:
        """For example `vgg 256x256 3x3 56`."""
        step = f" /{self.stride}" if self.stride > 1 else ""
        batch = f" b{self.batch}" if self.batch != 32 else ""
        sizes = f"{self.filters}x{self.channels} {self.kernel}x{self.kernel} {self.size}"
        return f"{self.network} {sizes}{step}{batch}"

    @property
    def grid(self) -> ConvGrid:
        """How it lies in memory."""
        shape = ConvShape(
            channels=self.channels,
            height=self.size,
            width=self.size,
            kernel_h=self.kernel,
            kernel_w=self.kernel,
            stride=self.stride,
            padding=self.kernel // 2,
            batch=self.batch,
        )
        return ConvGrid(conv=shape, border=max(self.kernel // 2, 1))


VGG = tuple(
    Case(*sizes, network="vgg")
    for sizes in (
        (64, 64, 224),
        (128, 64, 112),
        (128, 128, 112),
        (256, 128, 56),
        (256, 256, 56),
        (512, 256, 28),
        (512, 512, 28),
        (512, 512, 14),
    )
)
RESNET = tuple(
    Case(*sizes, network="resnet")
    for sizes in (
        (64, 64, 56),
        (128, 128, 56, 2),
        (128, 128, 28),
        (256, 256, 28, 2),
        (256, 256, 14),
        (512, 512, 14, 2),
        (512, 512, 7),
    )
)
SMALL = (
    Case(256, 24, 9, batch=8, network="small"),
    Case(192, 16, 12, kernel=5, batch=16, network="small"),
    Case(256, 64, 10, kernel=1, batch=40, network="small"),
    Case(128, 40, 11, 2, batch=24, network="small"),
)


def filters_of(case: Case) -> np.ndarray:
    """(filters, channels * kernel^2) fp32, of values that fp16 has."""
    rng = np.random.default_rng([case.filters, case.channels, case.size])
    values = rng.standard_normal((case.filters, case.channels * case.kernel**2))
    return values.astype(np.float16).astype(np.float32)


def tiles_of(case: Case, height: int) -> TileMap:
    """What is kept of a layer."""
    pattern = parse_pattern(f"tile-wise:{height}")
    kept = pattern.map(pattern.prune({"w": np.abs(filters_of(case))}, SPARSITY)["w"])
    assert isinstance(kept, TileMap)
    return kept


def products() -> dict[str, KernelPlan]:
    """Name of a case and its plan -> the plan of the product; `grid_plan` makes the convolution's."""
    found = {}
    for case in SMALL:
        for height in (height for height in (64, 128, 256) if height <= case.filters):
            tiles = tiles_of(case, height)
            for config in (*tile_configs(GPU, "fp16", height), *list(mma_configs(GPU, "fp16", "mma"))[:6]):
                if config.shape.block_m == height:
                    name = f"{case.name}|{config.tensor_path} {config}"
                    found[name] = plan_with(config, "stspmm", tiles, case.grid.n, "fp16", GPU)
    for case in (*VGG, *RESNET):
        for height in sorted({min(128, case.filters), min(256, case.filters)}):
            tiles, grid = tiles_of(case, height), case.grid
            chosen = fastest_plan("stspmm", tiles, grid.n, "fp16", GPU, source=grid)
            for config in tile_configs(GPU, "fp16", height):
                plan = plan_with(config, "stspmm", tiles, grid.n, "fp16", GPU)
                name = f"{case.name}|tile-wise:{height}"
                found[name if config.shape == chosen.shape else f"{name} {config}"] = plan
    return found


def prepare(folder: Path, changes: dict[str, int]) -> None:
    """Write `plans.npz`, `plans.json` and `cubin/`."""
    import os

    os.environ["PRUNECAST_CACHE"] = str(folder / "cubin")
    plans = products()
    save_plans(folder, plans)
    cases = {case.name: case for case in (*SMALL, *VGG, *RESNET)}

    def build(name: str, changes: dict[str, int] | None = None) -> Any:
        plan = grid_plan(plans[name], cases[name.partition("|")[0]].grid, GPU)
        if plan.tensor == "mma":
            return build_mma(plan, ARCH, mma_defines(plan))
        return build_tile_kernel(plan, tile_defines(plan, changes=changes))

    with ThreadPoolExecutor(2) as pool:
        built = [*pool.map(build, plans), compile_cubin(MICROBENCHMARKS / "clock_probe.cu", ARCH, {})]
        own = [name for name, plan in plans.items() if changes and plan.tensor == "wgmma"]
        built += pool.map(partial(build, changes=changes), own)
    print(f"{len(plans)} plans, {len({kernel.cubin for kernel in built})} cubins")


def run(options: argparse.Namespace, changes: dict[str, int]) -> None:
    """Check and time every case while time is left."""
    import cupy as cp

    plans, began, rows = load_plans(options.folder), time.perf_counter(), []
    stream = cp.cuda.Stream(non_blocking=True)
    wanted = [case for case in (*SMALL, *VGG, *RESNET) if not options.case or case.name in options.case]
    for case in wanted:
        if time.perf_counter() - began > options.seconds:
            print("out of time at", case.name)
            break
        own = {
            name.partition("|")[2]: plan for name, plan in plans.items() if name.startswith(f"{case.name}|")
        }
        if case.network != "small" and not options.configs:
            own = {name: plan for name, plan in own.items() if " " not in name}
        try:
            rows.append(_run_case(case, own, stream, options.turns, changes))
        except Exception as reason:  # the others go on
            print(f"{case.name}: {type(reason).__name__}: {str(reason)[:300]}", flush=True)
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "convolutions.json").write_text(json.dumps(rows, indent=1))
    _summary(rows)


def _run_case(
    case: Case, plans: dict[str, KernelPlan], stream: Any, turns: int, changes: dict[str, int]
) -> dict[str, Any]:
    import torch

    with stream, torch.cuda.stream(torch.cuda.ExternalStream(stream.ptr)), torch.no_grad():
        layer = _Layer(case)
        operators = {name: layer.checked(plan) for name, plan in plans.items()}
        if changes and case.network != "small":
            operators |= {f"{name} changed": layer.checked(plan, changes) for name, plan in plans.items()}
        found: dict[str, Any] = {"case": case.name, "excess": layer.excess}
        if case.network != "small":
            found["us"] = _times(layer, operators, stream, turns)
    wrong = {name: excess for name, excess in layer.excess.items() if not excess <= 1.0} or "none"
    checks = f"{len(operators)} checked, worst {max(layer.excess.values()):.2f} of the bound, wrong {wrong}"
    said = " ".join(f"{name} {us:.1f}" for name, us in found.get("us", {}).items())
    print(f"{case.name}: {checks}; {said}", flush=True)
    return found


class _Layer:
    """A layer's input, filters and output by torch."""

    def __init__(self, case: Case) -> None:
        import torch

        from benchmarks.on_gpu.timing import sets_for

        self.case, self.excess = case, {}
        shape = (case.batch, case.channels, case.size, case.size)
        torch.manual_seed(1)
        moved = 2 * (case.batch * case.size**2 * case.channels + case.grid.conv.n * case.filters)
        self.sets = min(sets_for(moved, "cold"), MOST_SETS) if case.network != "small" else 1
        self.xs = [torch.randn(shape, device="cuda").half() for _ in range(self.sets)]
        self.padding = case.kernel // 2
        self._wanted: dict[bytes, Any] = {}

    def weight(self, tiles: TileMap) -> Any:
        """Filters with what is pruned set to zero."""
        import torch

        kept = torch.from_numpy(filters_of(self.case) * tiles.mask()).cuda()
        return kept.view(self.case.filters, self.case.channels, self.case.kernel, self.case.kernel)

    def checked(self, plan: KernelPlan, changes: dict[str, int] | None = None) -> Any:
        """The operator of a plan; how far it is from torch goes to `excess`."""
        import cupy as cp
        import torch

        from prunecast.kernels import compile
        from prunecast.kernels.device.conv_operator import ConvOperator
        from prunecast.kernels.tile.cuda.operator import TileOperator
        from prunecast.torch.conv import images_in, planes_of

        case, grid = self.case, self.case.grid
        operator: Any = compile(grid_plan(plan, grid, GPU), filters_of(case))
        if changes:
            changed = TileOperator.compile(grid_plan(plan, grid, GPU), filters_of(case), changes=changes)
            operator = ConvOperator(changed, grid)
        source = planes_of(self.xs[0], case.batch, grid.border)
        shape = (operator.output.pixels, case.batch)
        y = torch.full(shape, torch.nan, dtype=torch.float16, device="cuda")
        operator.clear(cp.from_dlpack(y))
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
        import torch
        from torch.nn.functional import conv2d

        key = plan.tiles.fingerprint().encode()
        if key not in self._wanted:
            torch.backends.cudnn.allow_tf32 = False
            options = {"stride": self.case.stride, "padding": self.padding}
            weight, x = self.weight(plan.tiles), self.xs[0].float()
            wanted, size = conv2d(x, weight, **options), conv2d(x.abs(), weight.abs(), **options)
            gamma = 2 * int(plan.tiles.kept_per_tile.max()) * 2.0**-23
            self._wanted = {key: (wanted, gamma * size + 2.0**-11 * (wanted.abs() + gamma * size) + 2.0**-24)}
        return self._wanted[key]


def _times(layer: _Layer, operators: dict[str, Any], stream: Any, turns: int) -> dict[str, float]:
    """Microseconds by contestant."""
    import torch

    from benchmarks.on_gpu.timing import contestant, take_turns
    from prunecast.torch.conv import planes_of

    sets, found = layer.sets, []
    sources = [planes_of(x, layer.case.batch, layer.case.grid.border) for x in layer.xs]
    for name, operator in operators.items():
        outs = [operator(source) for source in sources]
        own = [operator, *(operator.copy() for _ in range(sets - 1))]

        def launch(i: int, own: Any = own, outs: Any = outs) -> None:
            own[i](sources[i], out=outs[i])

        found.append(contestant(name, stream, launch, sets=sets))
    tiles = next(iter(operators.values())).plan.tiles
    for layout in (torch.channels_last, torch.contiguous_format):
        found.append(_cudnn(layer, tiles, layout, stream, tuned=True))
    with ThreadPoolExecutor(1) as thread:  # torch keeps a tuned choice for the thread that tuned
        for layout in (torch.channels_last, torch.contiguous_format):
            found.append(thread.submit(_cudnn, layer, tiles, layout, stream, tuned=False).result())
    samples = take_turns(stream, found, turns)
    return {name: sample.median * 1e6 for name, sample in samples.items()}


def _cudnn(layer: _Layer, tiles: TileMap, layout: Any, stream: Any, *, tuned: bool) -> Any:
    import torch
    from torch.nn.functional import conv2d

    from benchmarks.on_gpu.timing import contestant

    weights = [layer.weight(tiles).half().to(memory_format=layout) for _ in range(layer.sets)]
    xs = [x.to(memory_format=layout) for x in layer.xs]
    external = torch.cuda.ExternalStream(stream.ptr)

    def launch(i: int) -> Any:
        torch.backends.cudnn.benchmark = tuned
        with torch.cuda.stream(external), torch.no_grad():
            return conv2d(xs[i], weights[i], stride=layer.case.stride, padding=layer.padding)

    name = "channels last" if layout is torch.channels_last else "contiguous"
    with stream:
        return contestant(f"cuDNN {name}{' tuned' if tuned else ''}", stream, launch, sets=layer.sets)


def _summary(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        us = row.get("us")
        if not us:
            continue
        dense = min(value for name, value in us.items() if name.startswith("cuDNN"))
        for name, value in us.items():
            if not name.startswith("cuDNN"):
                against = f"cuDNN {dense:8.1f} us, {dense / value:5.2f}"
                print(f"{row['case']:28s} {name:24s} {value:8.1f} us, {against}")
    for network in ("vgg", "resnet"):
        best = [_gain(row) for row in rows if row["case"].startswith(network) and row.get("us")]
        if best:
            print(f"{network}: geometric mean {np.exp(np.mean(np.log(best))):.2f} of {len(best)} layers")


def _gain(row: dict[str, Any]) -> float:
    """Of tiles of 128 filters, or of 64 where there are no more."""
    own = [us for name, us in row["us"].items() if name in ("tile-wise:128", "tile-wise:64")]
    return float(min(us for name, us in row["us"].items() if name.startswith("cuDNN")) / own[0])


def main() -> None:
    """Prepare or run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("prepare", "run"))
    parser.add_argument("--folder", type=Path, default=Path("build/conv"))
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--case", action="append", default=[])
    parser.add_argument("--seconds", type=float, default=200.0)
    parser.add_argument("--configs", action="store_true", help="every config, not the chosen one alone")
    parser.add_argument("--changes", nargs="*", default=[], help="NAME=NUMBER of a second build")
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    changes = {one.partition("=")[0]: int(one.partition("=")[2]) for one in options.changes}
    prepare(options.folder, changes) if options.what == "prepare" else run(options, changes)


if __name__ == "__main__":
    main()

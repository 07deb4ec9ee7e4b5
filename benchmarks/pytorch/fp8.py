"""Tiles in fp8 against dense fp8 (`torch._scaled_mm`), dense bf16 and tiles in bf16: products, and Llama-7B.

    python -m benchmarks.pytorch.fp8 build      # compile the kernels into $PRUNECAST_CACHE, without a GPU
    python -m benchmarks.pytorch.fp8 run [--blocks N] [--out F.json] [--tiny]
    python -m benchmarks.pytorch.fp8 show F.json   # with the predictions of today, without a GPU

First forms of the kernel are compared with float64, tile by tile, on poisoned outputs, and the errors of the
formats with a product in fp32. Products are timed in graphs of several launches that rotate over 130 MB, the
blocks of Llama in a graph, eager and compiled. Dense fp8 has a scale per row or per tensor; the passes that
quantise x are in its time, as for tiles. `--tiny` runs every line on small sizes, on a CPU too.
"""

import argparse
import json
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from benchmarks.pytorch.cases import DEVICE, Case, llama, release
from prunecast.choice import fastest_plan
from prunecast.hardware import load_gpu
from prunecast.kernels.device.launch import Place
from prunecast.kernels.device.quantise.quantise import quantise_launch
from prunecast.kernels.tile.config import RUN, TOKEN_FORM
from prunecast.kernels.tile.cuda.fp8 import Fp8TileOperator
from prunecast.kernels.tile.cuda.operator import TileOperator
from prunecast.models import estimate
from prunecast.patterns import TileMap
from prunecast.simulator import simulate
from prunecast.torch import fuse_dense, prepare_attention, sparsify
from prunecast.torch.cuda.fp8 import launch
from prunecast.torch.epilogue import PLAIN, Epilogue, Fp8Call, activated
from prunecast.torch.fp8 import Fp8Product
from prunecast.torch.layer_plans import layouts_for
from prunecast.torch.packed import PackedProduct
from prunecast.torch.quantise import quantise, quantised
from prunecast.torch.sparse_linear import DensePart
from prunecast.validation.torch_models.timing import captured, error, times_us, traced

GPU = "h200-sxm"
HEIGHT, PATTERN, FP16_PATTERN = TOKEN_FORM[0], f"block:{TOKEN_FORM[0]}x{RUN}", "tile-wise:128"
ROTATED_BYTES = 130e6
DTYPE = torch.bfloat16
E4M3 = torch.float8_e4m3fn
MOST_RMS_OF_TILE = 0.01
"""Of a tile with one wrong run of columns the relative error is 0.1 or more. Kind: choice."""


class Product(NamedTuple):
    """Sizes and sparsity of a product, and whether its prediction may be fitted to it."""

    m: int
    k: int
    n: int
    sparsity: float = 0.75
    use: str = "judge"

    @property
    def name(self) -> str:
        """Sizes and sparsity."""
        return f"{self.m}x{self.k}x{self.n} {self.sparsity:.0%}"


def product_of(name: str) -> Product:
    """Return the product with such a name."""
    sizes, sparsity = name.split()
    m, k, n = (int(size) for size in sizes.split("x"))
    return Product(m, k, n, float(sparsity.rstrip("%")) / 100.0)


PRODUCTS = (
    Product(4096, 11008, 2048),
    Product(22016, 4096, 2048, 0.75, "fit"),
    Product(12288, 4096, 2048),
    Product(4096, 4096, 2048),
    Product(4096, 4096, 4096),
    Product(2048, 2048, 8192),
    Product(4096, 4096, 4096, 0.5, "fit"),
    Product(4096, 11008, 2048, 0.9, "fit"),
    Product(2048, 2048, 8192, 0.5, "fit"),
    Product(8192, 8192, 4096, 0.75, "fit"),
    Product(4096, 11008, 2048, 0.5),
    Product(4096, 4096, 4096, 0.9),
)
TINY = (Product(512, 512, 128),)


def run_map(product: Product, height: int, run: int) -> TileMap:
    """Return tiles of so many rows, each with as many random runs of columns as the others."""
    rng = np.random.default_rng(product.k)
    runs, tiles = product.k // run, product.m // height
    kept = max(round(runs * (1.0 - product.sparsity)), 1)
    first = [np.sort(rng.choice(runs, kept, replace=False)) for _ in range(tiles)]
    columns = run * np.array(first)[:, :, None] + np.arange(run)
    return TileMap(
        m=product.m,
        k=product.k,
        row_start=height * np.arange(tiles + 1),
        row_index=np.arange(product.m),
        column_start=kept * run * np.arange(tiles + 1),
        column_index=columns.ravel(),
        pattern=PATTERN if run > 1 else FP16_PATTERN,
    )


def plans(product: Product) -> dict[str, Any]:
    """Return the plans of fp8 and bf16 tiles."""
    gpu = load_gpu(GPU)
    fp8, bf16 = run_map(product, HEIGHT, RUN), run_map(product, 128, 1)
    return {
        "fp8 tiles": fastest_plan("stspmm", fp8, product.n, "fp8", gpu),
        "bf16 tiles": fastest_plan("stspmm", bf16, product.n, "bf16", gpu),
    }


def predicted(product: Product) -> dict[str, float]:
    """Return predicted times of the product alone in us, by the closed form and the simulator."""
    gpu, plan = load_gpu(GPU), plans(product)["fp8 tiles"]
    return {"model": 1e6 * estimate(plan, gpu).seconds, "simulator": 1e6 * simulate(plan, gpu).seconds}


def build() -> None:
    """Compile what `run` launches; the cache is carried to the GPU."""
    for features in sorted({product.k for product in PRODUCTS}):
        launch = quantise_launch(Place(0, 2 * features), 0, 0, 1, features, "bf16")
        for arch in ("sm_90a", "sm_90"):
            launch.build(arch)
    for cluster_of in PRODUCTS:
        made = plans(cluster_of)
        for change in ("", "GLU", "RESIDUAL"):
            for bias in (False, True):
                for output in ("bf16", "fp16"):
                    Fp8TileOperator.compile_inputs(
                        made["fp8 tiles"],
                        bias=bias,
                        output=output,
                        activation="silu" if change == "GLU" else "none",
                        changes={"GLU": 0, "TOKEN_MAJOR": 1, **({change: 1} if change else {})},
                    ).build()
        TileOperator.compile_inputs(made["bf16 tiles"], changes={"TOKEN_MAJOR": 1}).build()
        print(cluster_of.name, made["fp8 tiles"].cluster, str(made["bf16 tiles"].config), flush=True)


# ---- correctness


def check(product: Product, *, bias: bool, glu: bool, dtype: torch.dtype) -> dict[str, float]:
    """Return the worst error over its bound of any element, by tiles; raise if one is wrong."""
    torch.manual_seed(product.n)
    tiles, epilogue = run_map(product, HEIGHT, RUN), Epilogue("silu" if glu else "none", glu)
    weight = torch.randn(product.m, product.k, device=DEVICE).to(dtype)
    added = torch.randn(product.m, device=DEVICE) if bias else None
    x = (torch.randn(product.n, product.k, device=DEVICE) * torch.rand(product.n, 1, device=DEVICE)).to(dtype)
    own = {"gpu": load_gpu(GPU), "max_tokens": product.n, "epilogue": epilogue}
    sparse = Fp8Product(weight, tiles, added, few=None, **own)
    bits, scales = quantise(x)
    plain, plain_scales = quantised(x)
    other = float((bits.float() != plain.float()).float().mean())
    if not (torch.allclose(scales, plain_scales, rtol=1e-6, atol=0.0) and other < 1e-3):
        raise RuntimeError(f"{product.name}: x is not quantised as torch does")
    y = torch.full((product.n, sparse.rows), float("nan"), dtype=dtype, device=DEVICE)
    packed = (sparse.image_0, sparse.row_scales, sparse.tiles, sparse.fp32_bias, sparse.rows)
    call = Fp8Call(bits, scales, *packed, epilogue.activation, glu, dtype, GPU, sparse.plan)
    if DEVICE == "cuda":
        launch(call, y)
    else:
        y = torch.ops.prunecast.fp8_linear.default(*call)
    mask = torch.from_numpy(tiles.mask()).to(DEVICE)
    rows, row_scales = quantised(weight * mask)
    a = rows.double() * row_scales.double()[:, None]
    b = bits.double() * scales.double()[:, None]
    wanted, size = b @ a.T, b.abs() @ a.abs().T
    wanted = wanted + (0 if added is None else added.double())
    # The tensor cores keep 13 bits of a sum, in each step of 32 columns
    off = size * (2.0**-14 * -(-product.k // 32) * (1.0 - product.sparsity))
    if glu:
        parts, offs = wanted.unflatten(-1, (-1, 2, 8)), off.unflatten(-1, (-1, 2, 8))
        unit = nn.functional.silu(parts[..., 0, :])
        off = (1.1 * offs[..., 0, :] * parts[..., 1, :].abs() + unit.abs() * offs[..., 1, :]).flatten(-2)
        off = off + 2.0**-18 * (parts[..., 0, :] * parts[..., 1, :]).abs().flatten(-2)
        wanted = activated(wanted, epilogue)
    ulp = 2.0**-8 if dtype is torch.bfloat16 else 2.0**-11
    excess = (y.double() - wanted).abs() / (off + ulp * wanted.abs() + 1e-7)
    worst, by_tile = (
        float(excess.max()),
        _rms_by_tile(y.double() - wanted, wanted, HEIGHT // 2 if glu else HEIGHT),
    )
    if not (worst <= 1.0 and by_tile <= MOST_RMS_OF_TILE):
        raise RuntimeError(f"{product.name}: {worst:.3g} times the bound, rms of a tile {by_tile:.3g}")
    return {"excess": worst, "rms of a tile": by_tile, "rms": _rms(y.double() - wanted, wanted)}


def _rms_by_tile(off: torch.Tensor, wanted: torch.Tensor, height: int) -> float:
    """Return the largest relative RMS error of 128 tokens and the rows of a tile."""
    worst = 0.0
    for own, right in zip(off.split(128), wanted.split(128), strict=True):
        for tile, true in zip(own.split(height, 1), right.split(height, 1), strict=True):
            worst = max(worst, _rms(tile, true))
    return worst


def _rms(off: torch.Tensor, wanted: torch.Tensor) -> float:
    return float(off.norm() / wanted.norm())


def check_all(tiny: bool) -> list[dict[str, Any]]:
    """Return one record for each form that was compared with float64."""
    forms: list[tuple[Product, bool, bool, torch.dtype]] = [
        (Product(4096, 4096, 2000, 0.75), False, False, torch.bfloat16),
        (Product(2048, 11008, 515, 0.5), True, False, torch.float16),
        (Product(4096, 4096, 640, 0.75), False, True, torch.bfloat16),
        (Product(2048, 2048, 100, 0.9), True, True, torch.float16),
        (Product(768, 1040, 77, 0.5), False, False, torch.bfloat16),
    ]
    if tiny:
        forms = [(Product(512, 512, 70), True, glu, torch.bfloat16) for glu in (False, True)]
    found = []
    for product, bias, glu, dtype in forms:
        own = check(product, bias=bias, glu=glu, dtype=dtype)
        found.append({"product": product.name, "bias": bias, "glu": glu, "dtype": str(dtype), **own})
        print(found[-1], flush=True)
    return found


def accuracy(product: Product) -> dict[str, float]:
    """Return relative RMS errors against fp32, of tiles and of torch's dense products with the same zeros."""
    torch.manual_seed(1)
    tiles = run_map(product, HEIGHT, RUN)
    mask = torch.from_numpy(tiles.mask()).to(DEVICE)
    weight = torch.randn(product.m, product.k, device=DEVICE).to(DTYPE) * mask
    x = torch.randn(product.n, product.k, device=DEVICE).to(DTYPE)
    wanted = (x.double() @ weight.double().T).float()
    sparse = Fp8Product(weight, tiles, None, few=None, gpu=load_gpu(GPU), max_tokens=product.n)
    found = {"fp8 tiles": _rms(sparse(x).float() - wanted, wanted)}
    for scales in ("row", "tensor"):
        dense = ScaledLinear(weight, None, scales)
        found[f"dense fp8, scale per {scales}"] = _rms(dense(x).float() - wanted, wanted)
    return found


# ---- dense fp8


class ScaledLinear(nn.Module):
    """y = x A^T by `torch._scaled_mm`, with x quantised in the forward, as a user would write it.

    scales : `row`, a scale per token and per row of A; or `tensor`, one of each
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, scales: str) -> None:
        super().__init__()
        self.scales, self.out_features, self.bias = scales, len(weight), bias
        values, scale = self._quantised(weight)
        self.register_buffer("weight", values, persistent=False)
        self.register_buffer("scale", scale, persistent=False)

    def _quantised(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if self.scales == "row":
            return quantised(x)
        size = x.abs().amax().float().clamp(min=1e-12)
        return (x.float() * (448.0 / size)).to(E4M3), size / 448.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return y (..., M) in bf16."""
        flat = x.reshape(-1, x.shape[-1])
        values, scale = self._quantised(flat)
        y = scaled_mm(values, scale, self.weight, self.scale, self.scales)
        y = y if self.bias is None else y + self.bias
        return y.view(*x.shape[:-1], self.out_features)

    def part(self, x: torch.Tensor, first: int, last: int) -> torch.Tensor:
        """Return features of y, computed once for all parts."""
        held = getattr(self, "_held", None)
        y = held[1] if held is not None and held[0] is x else self(x)
        self._held = None if last == self.out_features else (x, y)
        return y[..., first:last]


def scaled_mm(
    x: torch.Tensor, scale: torch.Tensor, weight: torch.Tensor, weight_scale: torch.Tensor, scales: str
) -> torch.Tensor:
    """Return the product by cuBLASLt or CUTLASS; in fp32 on a CPU."""
    if scales == "row":
        scale, weight_scale = scale[:, None], weight_scale[None, :]
    if not x.is_cuda:
        return ((x.float() * scale) @ (weight.float().t() * weight_scale)).to(DTYPE)
    return torch._scaled_mm(
        x, weight.t(), scale_a=scale, scale_b=weight_scale, out_dtype=DTYPE, use_fast_accum=True
    )


def in_dense_fp8(model: nn.Module, scales: str) -> nn.Module:
    """Join Q, K, V and gate, up, and replace every product by `ScaledLinear`, in place."""
    fuse_dense(model)
    joined: dict[nn.Module, ScaledLinear] = {}
    for name, module in list(model.named_modules()):
        if isinstance(module, DensePart):
            product = module.product
            joined.setdefault(product, ScaledLinear(product.weight, product.bias, scales))
            module.product = joined[product]
        elif isinstance(module, nn.Linear):
            bias = None if module.bias is None else module.bias.detach()
            model.set_submodule(name, ScaledLinear(module.weight.detach(), bias, scales))
    return model


# ---- times


@torch.no_grad()
def measure_product(product: Product, rounds: int) -> dict[str, Any]:
    """Return times in us of one product by kind, quantising included where the name says so."""
    torch.manual_seed(0)
    m, k, n = product[:3]
    sets = max(min(int(ROTATED_BYTES / (n * (k + m) * 2)), 12), 2)
    xs = [torch.randn(n, k, device=DEVICE).to(DTYPE) for _ in range(sets)]
    weight = torch.randn(m, k, device=DEVICE).to(DTYPE)
    gpu = load_gpu(GPU)
    fp8_tiles, tiles = run_map(product, HEIGHT, RUN), run_map(product, min(128, m), 1)
    sparse = Fp8Product(weight, fp8_tiles, None, few=None, gpu=gpu, max_tokens=n)
    layouts = layouts_for(tiles, "bf16", gpu, n, few_tokens=False)
    in_bf16 = PackedProduct(weight, tiles, None, gpu=gpu, max_tokens=n, layouts=layouts, epilogue=PLAIN)
    rows, tensor = ScaledLinear(weight, None, "row"), ScaledLinear(weight, None, "tensor")
    by_row, by_tensor = [quantise(x) for x in xs], [tensor._quantised(x) for x in xs]
    transposed = [x.t().contiguous().t() for x in xs]
    rest = (sparse.image_0, sparse.row_scales, sparse.tiles, None, m, "none", False, DTYPE, GPU, sparse.plan)
    forms: dict[str, Callable[[int], torch.Tensor]] = {
        "dense bf16": lambda i: nn.functional.linear(xs[i], weight),
        "dense fp8, rows, product": lambda i: scaled_mm(*by_row[i], rows.weight, rows.scale, "row"),
        "dense fp8, tensor, product": lambda i: scaled_mm(
            *by_tensor[i], tensor.weight, tensor.scale, "tensor"
        ),
        "bf16 tiles, product": lambda i: in_bf16(transposed[i]),
        "bf16 tiles": lambda i: in_bf16(xs[i]),
        "fp8 tiles, product": lambda i: torch.ops.prunecast.fp8_linear.default(*by_row[i], *rest),
        "fp8 tiles": lambda i: sparse(xs[i]),
        "quantise": lambda i: quantise(xs[i])[0],
        # The pass of the package before torch's product: the best that dense fp8 could be
        "dense fp8, rows": lambda i: scaled_mm(*quantise(xs[i]), rows.weight, rows.scale, "row"),
    }

    def of(form: Callable[[int], torch.Tensor]) -> Callable[[], torch.Tensor]:
        def forward() -> torch.Tensor:
            for i in range(sets):
                y = form(i)
            return y

        return captured(forward)

    us = {
        name: t / sets
        for name, t in times_us({name: of(form) for name, form in forms.items()}, rounds).items()
    }
    return {"product": product.name, "use": product.use, "us": us}


@torch.no_grad()
def measure_llama(
    blocks: int,
    rounds: int,
    *,
    tiny: bool,
    document: dict[str, Any],
    save: Callable[[], None],
    only: Sequence[str] = (),
    forms: Sequence[str] = ("graph", "compiled"),
) -> None:
    """Add times of a pass of Llama-7B's blocks in us, by kind and form; all kinds, or some."""
    import transformers as hf

    case = Case("Llama-7B", hf.LlamaModel, llama(blocks), 1, 2048)
    case = case.tiny() if tiny else case
    pattern = (PATTERN, FP16_PATTERN)
    if tiny:
        case.config.hidden_size, case.config.intermediate_size, case.config.head_dim = 256, 512, 64
    inputs, tokens = case.inputs(), case.batch * case.tokens
    own: dict[str, Any] = document.setdefault(
        "llama", {"blocks": blocks, "us": {}, "error": {}, "seconds": {}}
    )

    def made() -> nn.Module:
        model = case.make().to(DTYPE)
        prepare_attention(model, padding="none")
        return model

    def sparse(name: str, **options: Any) -> nn.Module:
        model = made()
        given = {"sparsity": 0.75, "gpu": GPU, "max_tokens": tokens, "few_tokens": False, "quiet": True}
        sparsify(model, name, **given, **options)
        return model

    kinds: dict[str, Callable[[], nn.Module]] = {
        "fp8 tiles": lambda: sparse(pattern[0], dtype="fp8"),
        "dense fp8, rows": lambda: in_dense_fp8(made(), "row"),
        "bf16 tiles": lambda: sparse(pattern[1]),
        "dense bf16": lambda: fuse_dense(made()),
        "dense fp8, tensor": lambda: in_dense_fp8(made(), "tensor"),
    }
    variants: dict[str, Callable[[], torch.Tensor]] = {}
    models: dict[str, nn.Module] = {}
    for kind, make in kinds.items():
        if only and kind not in only:
            continue
        start = time.monotonic()
        models[kind] = model = make()
        packed = time.monotonic() - start
        for form in forms:
            if form == "graph" and kind.startswith("dense"):
                continue
            try:
                torch._dynamo.reset()
                backend = "inductor" if DEVICE == "cuda" else "eager"
                run = torch.compile(model, backend=backend) if form == "compiled" else model

                def forward(run: Any = run) -> torch.Tensor:
                    return run(**inputs).last_hidden_state

                with torch._inductor.config.patch({"triton.enable_pdl": True}):
                    variants[f"{kind} {form}"] = captured(forward)
            except Exception:
                print(kind, form, traceback.format_exc()[-1500:], flush=True)
        own["seconds"][kind] = [packed, time.monotonic() - start - packed]
        own["us"].update(times_us(variants, max(rounds // 3, 3)))
        print(kind, own["seconds"][kind], own["us"], flush=True)
        save()
    own["us"].update(times_us(variants, rounds))
    if DEVICE == "cuda":
        own["trace"] = {
            name: traced(variants[name]).record() for name in variants if name.endswith("compiled")
        }
    if "fp8 tiles graph" in variants:
        own["error"]["compiled against graph"] = error(
            variants["fp8 tiles compiled"]().clone(), variants["fp8 tiles graph"]().clone()
        )
    variants.clear()
    release(models)
    save()


def show(document: dict[str, Any], *, predicts: bool = True) -> None:
    """Print the tables of a record, with predictions of today unless a GPU waits."""
    for row in document.get("accuracy", []):
        print(row)
    names: list[str] = []
    for row in document.get("products", []):
        us = row["us"]
        if not names:
            names = list(us)
            print(
                " | ".join(
                    ("product", *names, "over best dense fp8, quantised", "predicted model, simulator")
                )
            )
        dense = min(us["dense fp8, rows"], us["quantise"] + us["dense fp8, tensor, product"])
        cells = [f"{us[name]:.1f}" for name in names] + [f"{dense / us['fp8 tiles']:.2f}"]
        own = us["fp8 tiles, product"]
        times = predicted(product_of(row["product"])) if predicts else {}
        cells += [f"{t:.1f} ({t / own - 1:+.1%})" for t in times.values()]
        print(" | ".join((f"{row['product']} {row['use']}", *cells)))
    us = document.get("llama", {}).get("us", {})
    if us:
        print(" | ".join(f"{name} {t:.0f}" for name, t in us.items()))
        best = {kind: min((t for name, t in us.items() if name.startswith(kind)), default=0.0) for kind in
                ("dense fp8", "dense bf16", "bf16 tiles", "fp8 tiles")}  # fmt: skip
        for name, trace in document["llama"].get("trace", {}).items():
            print(f"{name}: {trace['busy_us']:.0f} us busy of {trace['span_us']:.0f}")
            for kernel, launches, us in trace["kernels"][:24]:
                print(f"    {us:8.1f} us {launches:g} x {kernel}")
        for kind in ("dense fp8", "dense bf16", "bf16 tiles"):
            if best[kind] and best["fp8 tiles"]:
                print(f"fp8 tiles {best[kind] / best['fp8 tiles']:.2f} times as fast as {kind}")


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("what", choices=("build", "run", "show"))
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=400.0, help="begin no product after so many")
    parser.add_argument("--only", default="", help="checks, products or llama")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    if asked.what == "build":
        build()
        return
    if asked.what == "show":
        show(json.loads(asked.file.read_text()))
        return
    began = time.monotonic()
    document: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if DEVICE == "cuda" else DEVICE,
        "torch": torch.__version__,
    }

    def save() -> None:
        if asked.out is not None:
            asked.out.write_text(json.dumps(document, indent=1))

    products = TINY if asked.tiny else PRODUCTS
    with torch.no_grad():
        document["checks"] = check_all(asked.tiny)
        print(f"checks: {time.monotonic() - began:.0f} s", flush=True)
        document["accuracy"] = [{"product": products[0].name, **accuracy(products[0])}]
        print(document["accuracy"], flush=True)
    document["products"] = []
    for product in products if asked.only in ("", "products") else ():
        if time.monotonic() - began > asked.seconds:
            break
        document["products"].append(measure_product(product, asked.rounds))
        show({"products": document["products"][-1:]}, predicts=False)
        save()
    print(f"products: {time.monotonic() - began:.0f} s", flush=True)
    if asked.only in ("", "llama"):
        measure_llama(asked.blocks, asked.rounds, tiny=asked.tiny, document=document, save=save)
    print(f"{time.monotonic() - began:.0f} s\n")
    show(document, predicts=False)


if __name__ == "__main__":
    main()

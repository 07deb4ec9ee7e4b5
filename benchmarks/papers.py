"""Headline claims of the five source systems beside what is predicted for their GPUs.

python -m benchmarks.papers [--only SYSTEM] [--markdown]

Claims are those of abstracts and slides; layers are the models' own, or of the authors' public benchmark,
random half-normal weights, fp16 unless said, closed form, burst. Convolutions count as products with one
column a pixel. A prediction is of our kernel and of today's library, or of the authors' form where the way
names one of `benchmarks.authors`.
"""

import argparse
from collections.abc import Callable, Iterable
from functools import cache
from typing import NamedTuple

import numpy as np

from benchmarks.authors import ON_MAPS, cutlass_seconds
from prunecast.choice import fastest_plan
from prunecast.codesign.graph import load_workload
from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec, load_gpu
from prunecast.kernels import plan_dense
from prunecast.models import estimate
from prunecast.patterns import TileMap, parse_pattern
from prunecast.patterns.importance import ImportanceArray

HEIGHT = 128
SKEW = 0.7
"""Standard deviation of the logarithm of the scale of columns and row blocks, where weights are skewed."""


class Product(NamedTuple):
    """A (M, K) and tokens."""

    m: int
    k: int
    n: int


class Way(NamedTuple):
    """How products run."""

    kernel: str
    pattern: str = "dense"
    sparsity: float | None = None
    dtype: str = "fp16"
    skewed: bool = False


class Claim(NamedTuple):
    """Time of one way over that of another on a GPU."""

    system: str
    what: str
    gpu: str
    products: tuple[Product, ...]
    base: Way
    way: Way
    published: float | None
    """Base over way; None where no number is public."""
    why: str


def of_model(name: str, *, batch: int, sequence: int = 128, fewest_rows: int = 64) -> tuple[Product, ...]:
    """Products of a standard model that tiles of its rows can prune."""
    products = load_workload(name, batch=batch, sequence=sequence).products.values()
    return tuple(Product(p.m, p.k, p.n) for p in products if min(p.m, p.k) >= fewest_rows)


def convolutions(batch: int) -> tuple[Product, ...]:
    """Those of VGG-16 with 128 filters and more."""
    return tuple(p for p in of_model("vgg16", batch=batch, fewest_rows=128) if p.k % 9 == 0)


def seconds(products: Iterable[Product], way: Way, gpu: GpuSpec) -> float:
    """Time of all products together. BadInput where the GPU or kernel cannot."""
    return sum(_seconds(product, way, gpu.name, gpu) for product in products)


_known: dict[tuple[Product, Way, str], float] = {}


def _seconds(product: Product, way: Way, name: str, gpu: GpuSpec) -> float:
    key = (product, way, name)
    if key not in _known:
        m, k, n = product
        if way.kernel == "dense":
            _known[key] = estimate(plan_dense(m, k, n, way.dtype, gpu), gpu).seconds
        elif way.kernel == "cutlass-1.3":
            _known[key] = cutlass_seconds(m, k, n, gpu)
        elif way.kernel in ON_MAPS:
            _known[key] = ON_MAPS[way.kernel](_kept(product, way, gpu), n, gpu)
        else:
            kept = _kept(product, way, gpu)
            _known[key] = estimate(fastest_plan(way.kernel, kept, n, way.dtype, gpu), gpu).seconds
    return _known[key]


def _kept(product: Product, way: Way, gpu: GpuSpec):  # type: ignore[no-untyped-def]
    m, k, n = product

    def planned(_: str, tiles: TileMap) -> float:
        return estimate(fastest_plan(way.kernel, tiles, n, way.dtype, gpu), gpu).seconds

    pattern = parse_pattern(way.pattern).timed_by(planned)
    importance = {"w": _importance(m, k, way.skewed)}
    return pattern.map(pattern.prune(importance, way.sparsity)["w"])


@cache
def _importance(m: int, k: int, skewed: bool) -> ImportanceArray:
    rng = np.random.default_rng([m, k])
    weights = np.abs(rng.standard_normal((m, k), dtype=np.float32))
    if not skewed:
        return weights
    blocks = np.repeat(np.exp(SKEW * rng.standard_normal(-(-m // HEIGHT))), HEIGHT)[:m, None]
    return (weights * blocks * np.exp(SKEW * rng.standard_normal(k))).astype(np.float32)


DENSE, DENSE_FP32, CUTLASS = Way("dense"), Way("dense", dtype="fp32"), Way("cutlass-1.3")


def claims() -> list[Claim]:
    """All of them, system by system."""
    return [*_tile_wise(), *_shuffled(), *_dense_blocks(), *_balanced(), *_adaptive()]


def _tile_wise() -> list[Claim]:
    bert, vgg = of_model("bert-base", batch=8), convolutions(8)
    tw, tvw = Way("stspmm", "tile-wise:128", 0.75), Way("2:4", "tvw:128", 0.75)
    block, csr = Way("block-sparse", "block:32x32", 0.75), Way("csr", "unstructured", 0.75)
    unsplit = Way("tile-wise", "tile-wise:128", 0.75)
    theirs = Way("per-tile", "tile-wise:128", 0.75)
    long = tuple(Product(m, k, 12800) for m, k in ((768, 768), (3072, 768), (768, 3072)))
    forms = "authors' forms: CUTLASS 1.3, a launch per tile"
    average = "mean over models, sparsities and accuracies that are not public; dense is CUTLASS 1.3"
    return [
        Claim("TW", "BERT-base, 75 %", "v100-sxm2-16gb", bert, DENSE, unsplit, 1.95, average),
        Claim("TW", "BERT-base, 75 %, STSpMM", "v100-pcie-16gb", bert, DENSE, tw, 1.95, average),
        Claim("TW", "BERT-base, 75 %, their kernels", "v100-pcie-16gb", bert, CUTLASS, theirs, 1.95, forms),
        Claim("TW", "the same, 12800 tokens", "v100-pcie-16gb", long, CUTLASS, theirs, 1.95, forms),
        Claim("TVW", "BERT-base, 75 %", "a100-sxm4-40gb", bert, DENSE, tvw, 1.85, average),
        Claim("TVW", "VGG-16 convolutions, 75 %", "a100-sxm4-40gb", vgg, DENSE, tvw, 1.85, average),
        Claim("TVW", "over block 32x32", "a100-sxm4-40gb", bert, block, tvw, 2.75, "at equal sparsity here"),
        Claim("TVW", "over CSR", "a100-sxm4-40gb", bert, csr, tvw, 22.18, "at equal sparsity here"),
    ]


def _shuffled() -> list[Claim]:
    sizes = tuple(
        Product(m, k, n) for m, k in ((1024, 1024), (4096, 1024), (1024, 4096)) for n in (960, 1056)
    )
    way = Way("stspmm", "vector-wise:64", 0.75)
    why = {
        "v100-sxm2-16gb": (1.81, "our kernel was never written for it; theirs stores through registers"),
        "t4": (4.18, "above the bound of 4 at equal dense: their dense baseline is slow"),
        "a100-sxm4-40gb": (1.90, ""),
    }
    return [
        Claim("Shfl-BW", "Transformer layers, V = 64, 75 %", gpu, sizes, DENSE, way, *claim)
        for gpu, claim in why.items()
    ] + [
        Claim(
            "Shfl-BW",
            "the same, their kernel",
            "v100-sxm2-16gb",
            sizes,
            DENSE,
            Way("wmma", "vector-wise:64", 0.75),
            1.81,
            "authors' form: WMMA, nothing split",
        )
    ]


def _dense_blocks() -> list[Claim]:
    vgg = convolutions(8)
    saved = "fp32 on CUDA cores; published: 64.8 % of the time saved"
    return [
        Claim(
            "PACT'20",
            f"VGG-16 convolutions, 74 %, {blocks}",
            "v100-sxm2-16gb",
            vgg,
            DENSE_FP32,
            Way("stspmm", blocks, 0.74, "fp32"),
            2.84,
            saved,
        )
        for blocks in ("dense-block:8", "dense-block:8:guided")
    ]


def _balanced() -> list[Claim]:
    lstm = (Product(6000, 3000, 1),)
    vgg = convolutions(1)
    return [
        Claim(
            "Balanced",
            "LSTM layer, one token, 80 %",
            "gtx-1080-ti",
            lstm,
            DENSE_FP32,
            Way("balanced", "balanced:64", 0.8, "fp32"),
            2.45,
            "two layers in the paper",
        ),
        Claim(
            "Balanced",
            "VGG-16 convolutions, 92 %",
            "gtx-1080-ti",
            vgg,
            DENSE_FP32,
            Way("balanced", "balanced:64", 0.92, "fp32"),
            1.31,
            "92 % in the mean there, here in every layer",
        ),
        Claim(
            "Balanced",
            "the same, CSR by cuSPARSE of the time",
            "gtx-1080-ti",
            vgg,
            DENSE_FP32,
            Way("csrmm", "unstructured", 0.92, "fp32"),
            0.17,
            "authors' form: B column-major; sums of the 13 convolutions of their table",
        ),
        Claim(
            "Balanced",
            "LSTM layer, one token, 80 %",
            "a100-sxm4-40gb",
            lstm,
            DENSE_FP32,
            Way("balanced", "balanced:64", 0.8, "fp32"),
            2.45,
            "one token is bound by DRAM",
        ),
    ]


def _adaptive() -> list[Claim]:
    bert = of_model("bert-small", batch=8)
    unsplit = Way("tile-wise", "tile-wise:128", 0.75, skewed=True)
    rows = {
        "STSpMM over tile-wise kernel, same tiles": "tile-wise:128",
        "ATP and STSpMM over TW": "atp:128",
        "guided ATP and STSpMM over TW": "atp:128:guided",
    }
    return [
        Claim(
            "ATP", what, gpu, bert, unsplit, Way("stspmm", pattern, 0.75, skewed=True), None, "skewed weights"
        )
        for gpu in ("a100-sxm4-40gb", "v100-sxm2-16gb", "h200-sxm")
        for what, pattern in rows.items()
    ]


def predicted(claim: Claim) -> float | None:
    """Base over way; None where the GPU has no kernel for one of them."""
    gpu = load_gpu(claim.gpu)
    try:
        return seconds(claim.products, claim.base, gpu) / seconds(claim.products, claim.way, gpu)
    except BadInput as error:
        print(f"{claim.system}, {claim.what}, {claim.gpu}: {error}")
        return None


def show(found: Callable[[Claim], float | None], only: str, *, markdown: bool) -> None:
    """One line for each claim."""
    row = (
        "| {:<8} | {:<48} | {:<15} | {:>9} | {:>9} | {:>8} | {} |"
        if markdown
        else "{:<8} {:<48} {:<15} {:>9} {:>9} {:>8}  {}"
    )
    print(row.format("system", "layers", "GPU", "published", "predicted", "off", "why"))
    if markdown:
        print("| --- | --- | --- | ---: | ---: | ---: | --- |")
    for claim in claims():
        if only.lower() not in claim.system.lower():
            continue
        ratio = found(claim)
        published = "" if claim.published is None else f"{claim.published:.2f}x"
        off = "" if None in (ratio, claim.published) else f"{100 * (ratio / claim.published - 1):+.0f} %"  # type: ignore[operator]
        print(
            row.format(
                claim.system,
                claim.what,
                claim.gpu,
                published,
                "no kernel" if ratio is None else f"{ratio:.2f}x",
                off,
                claim.why,
            ),
            flush=True,
        )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="part of a system's name")
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    show(predicted, options.only, markdown=options.markdown)


if __name__ == "__main__":
    main()

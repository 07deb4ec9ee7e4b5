"""Headline claims of the five source systems beside what is predicted for their GPUs.

python -m benchmarks.papers [--only SYSTEM] [--markdown]

Claims are those of abstracts and slides; layers are the models' own, or of the authors' public benchmark,
random half-normal weights, fp16 unless said, burst. Convolutions count as products with one column a pixel.
A prediction is of our kernel and of today's library, or of the authors' form where the way names one of
`benchmarks.authors`; by the closed form, the authors' forms by the simulator. Behind the table, times
that the authors of TW print for their benchmark on a V100.
"""

import argparse
from collections.abc import Callable, Iterable
from functools import cache
from typing import NamedTuple

import numpy as np

from benchmarks.authors import ON_MAPS, cutlass_seconds, halved, per_tile_seconds
from prunecast.choice import fastest_plan
from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec, load_gpu
from prunecast.kernels import plan_dense
from prunecast.models import estimate
from prunecast.patterns import TileMap, parse_pattern, retained_importance
from prunecast.patterns.importance import ImportanceArray
from prunecast.simulator import simulate
from prunecast.workload.graph import Pass, load_pass
from prunecast.workload.pruned_maps import sparsity_retaining

HEIGHT = 128
LAUNCHES = {"dense": "graph", "dense in streams": "stream"}
"""Ways of today's library, as the authors' forms are launched or as ours are."""
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
    as_important_as: str = ""
    """Pattern that retains at `sparsity` as much as `pattern` does at the sparsity that results; or empty."""


NEAR = 0.15
"""Relative difference up to which a claim counts as repeated. Kind: choice."""


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
    """Reason for the difference, or the conditions of the prediction."""

    def verdict(self, ratio: float | None) -> str:
        """Whether the prediction repeats the claim, and why, in one sentence."""
        if self.published is None:
            return f"No public number: {self.why}."
        if ratio is None:
            return f"Not predicted: {self.why}."
        repeated = abs(ratio / self.published - 1.0) <= NEAR
        return f"{'Repeated' if repeated else 'Not repeated'}: {self.why}."


def of_model(name: str, *, batch: int, sequence: int = 128, fewest_rows: int = 64) -> tuple[Product, ...]:
    """Products of a standard model that tiles of its rows can prune."""
    products = load_pass(name, Pass(batch, sequence)).products.values()
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
        _known[key] = _timed(product, way, gpu)
    return _known[key]


def _timed(product: Product, way: Way, gpu: GpuSpec) -> float:
    m, k, n = product
    if way.kernel == "cutlass-1.3":
        return cutlass_seconds(m, k, n, gpu)
    if way.kernel in ON_MAPS:
        return ON_MAPS[way.kernel](_kept(product, way, gpu), n, gpu)
    if way.kernel in LAUNCHES:
        launch = LAUNCHES[way.kernel]
        return estimate(plan_dense(m, k, n, way.dtype, gpu), gpu, launch=launch).seconds
    return estimate(fastest_plan(way.kernel, _kept(product, way, gpu), n, way.dtype, gpu), gpu).seconds


def _kept(product: Product, way: Way, gpu: GpuSpec):  # type: ignore[no-untyped-def]
    m, k, n = product

    def planned(_: str, tiles: TileMap) -> float:
        return estimate(fastest_plan(way.kernel, tiles, n, way.dtype, gpu), gpu).seconds

    def simulated(_: str, tiles: TileMap) -> float:
        return simulate(fastest_plan(way.kernel, tiles, n, way.dtype, gpu), gpu).seconds

    pattern = parse_pattern(way.pattern).timed_by(planned, simulated)
    scores, sparsity = _importance(m, k, way.skewed), way.sparsity
    if way.as_important_as:
        other = parse_pattern(way.as_important_as)
        wanted = retained_importance(scores, other.prune({"w": scores}, way.sparsity)["w"])
        sparsity = sparsity_retaining(pattern, scores, wanted)
    return pattern.map(pattern.prune({"w": scores}, sparsity)["w"])


@cache
def _importance(m: int, k: int, skewed: bool) -> ImportanceArray:
    rng = np.random.default_rng([m, k])
    weights = np.abs(rng.standard_normal((m, k), dtype=np.float32))
    if not skewed:
        return weights
    blocks = np.repeat(np.exp(SKEW * rng.standard_normal(-(-m // HEIGHT))), HEIGHT)[:m, None]
    return (weights * blocks * np.exp(SKEW * rng.standard_normal(k))).astype(np.float32)


DENSE, DENSE_FP32, CUTLASS = Way("dense"), Way("dense", dtype="fp32"), Way("cutlass-1.3")
PRINTED_N = 12800
PRINTED = {(768, 768): (252.7, 118.2), (768, 3072): (831.7, 298.6), (3072, 768): (849.9, 417.4)}
"""Rows and columns -> microseconds of dense and of 75 % on a V100: StreamMaskedGEMM/README.md of
github.com/clevercool/TileSparsity. Judged by, never fitted to."""


def claims() -> list[Claim]:
    """All of them, system by system."""
    return [*_tile_wise(), *_shuffled(), *_dense_blocks(), *_balanced(), *_adaptive()]


def _tile_wise() -> list[Claim]:
    bert, vgg = of_model("bert-base", batch=8), convolutions(8)
    tw, tvw = Way("stspmm", "tile-wise:128", 0.75), Way("2:4", "tvw:128", 0.75)
    block, csr = Way("block-sparse", "block:32x32", 0.75), Way("csr", "unstructured", 0.75)
    as_important = {"as_important_as": tvw.pattern}
    unsplit = Way("tile-wise", "tile-wise:128", 0.75)
    theirs = Way("per-tile", "tile-wise:128", 0.75)
    long = tuple(Product(m, k, PRINTED_N) for m, k in PRINTED)
    ours = "one kernel of ours for all tiles, where theirs launches each tile"
    few = "the mean of models and sparsities that are not public is between this row and the next"
    many = "the published mean is between this row and the last"
    average = "a mean over models and sparsities that are not public"
    block_form = "equal sparsity here, equal accuracy in the paper"
    a_block = "the block-sparse kernel is ours, which at equal sparsity is as fast as TVW"
    a_csr = "equal importance of random weights here, equal accuracy in the paper"
    v100, a100 = "v100-pcie-16gb", "a100-sxm4-40gb"
    return [
        Claim("TW", "BERT-base, 75 %", v100, bert, DENSE, unsplit, 1.95, ours),
        Claim("TW", "BERT-base, 75 %, STSpMM", v100, bert, DENSE, tw, 1.95, ours),
        Claim("TW", "BERT-base, 75 %, their kernels", v100, bert, CUTLASS, theirs, 1.95, few),
        Claim("TW", "the same, 12800 tokens", v100, long, CUTLASS, theirs, 1.95, many),
        Claim("TVW", "BERT-base, 75 %", a100, bert, DENSE, tvw, 1.85, average),
        Claim("TVW", "VGG-16 convolutions, 75 %", a100, vgg, DENSE, tvw, 1.85, average),
        Claim("TVW", "over block 32x32", a100, bert, block, tvw, 2.75, block_form),
        Claim(
            "TVW",
            "over block 32x32, equal importance",
            a100,
            bert,
            block._replace(**as_important),
            tvw,
            2.75,
            a_block,
        ),
        Claim(
            "TVW",
            "over CSR",
            a100,
            bert,
            csr,
            tvw,
            22.18,
            "partly by chance, at equal sparsity here and at equal accuracy in the paper",
        ),
        Claim(
            "TVW", "over CSR, equal importance", a100, bert, csr._replace(**as_important), tvw, 22.18, a_csr
        ),
    ]


def _shuffled() -> list[Claim]:
    sizes = tuple(
        Product(m, k, n) for m, k in ((1024, 1024), (4096, 1024), (1024, 4096)) for n in (960, 1056)
    )
    way = Way("stspmm", "vector-wise:64", 0.75)
    why = {
        "v100-sxm2-16gb": (1.81, "our kernel is another one; the authors' is in the last row of Shfl-BW"),
        "t4": (4.18, "4 is the bound at 75 % if dense products are equal, so their dense baseline is slow"),
        "a100-sxm4-40gb": (
            1.90,
            "our kernel is another one, and the authors' form is known for the V100 only",
        ),
    }
    theirs, form = (
        Way("wmma", "vector-wise:64", 0.75),
        "in the authors' form (WMMA, nothing split); the layers of the mean are not known",
    )
    layers, v100 = "Transformer layers, V = 64, 75 %", "v100-sxm2-16gb"
    return [
        *(Claim("Shfl-BW", layers, gpu, sizes, DENSE, way, *claim) for gpu, claim in why.items()),
        Claim("Shfl-BW", "the same, their kernel", v100, sizes, Way("dense in streams"), theirs, 1.81, form),
    ]


def _dense_blocks() -> list[Claim]:
    vgg, gpu = convolutions(8), "v100-sxm2-16gb"
    reasons = {
        "dense-block:8": "fp32 on CUDA cores; published as 64.8 % of the time saved",
        "dense-block:8:guided": "number and width of blocks are chosen by time, at equal importance",
    }
    return [
        Claim("PACT'20", f"VGG-16 convolutions, 74 %, {blocks}", gpu, vgg, DENSE_FP32, way, 2.84, why)
        for blocks, why in reasons.items()
        for way in (Way("stspmm", blocks, 0.74, "fp32"),)
    ]


def _balanced() -> list[Claim]:
    lstm, vgg, gpu = (Product(6000, 3000, 1),), convolutions(1), "gtx-1080-ti"
    one = Way("balanced", "balanced:64", 0.8, "fp32")
    mean = "92 % in the mean there, in every layer here, and another kernel"
    form = "the authors' form has B column-major, which reads a sector for each token"
    ours, csr = Way("balanced", "balanced:64", 0.92, "fp32"), Way("csrmm", "unstructured", 0.92, "fp32")
    layer, older = "LSTM layer, one token, 80 %", "the same, CSR by cuSPARSE of the time"
    lstm_csr = Way("csrmm", "unstructured", 0.8, "fp32")
    most = "the largest ratio of the paper, whose case is not public; the layer is bound by DRAM here"
    return [
        Claim("Balanced", f"{layer}, over cuSPARSE", gpu, lstm, lstm_csr, one, 3.1, most),
        Claim(
            "Balanced",
            layer,
            gpu,
            lstm,
            DENSE_FP32,
            one,
            2.45,
            "one layer and our kernel here, two layers and their kernel there",
        ),
        Claim("Balanced", "VGG-16 convolutions, 92 %", gpu, vgg, DENSE_FP32, ours, 1.31, mean),
        Claim("Balanced", older, gpu, vgg, DENSE_FP32, csr, 0.17, form),
        Claim(
            "Balanced",
            layer,
            "a100-sxm4-40gb",
            lstm,
            DENSE_FP32,
            one,
            2.45,
            "on another GPU; with one token both are bound by DRAM",
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
    print(row.format("system", "layers", "GPU", "published", "predicted", "off", "repeated?"))
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
                claim.verdict(ratio),
            ),
            flush=True,
        )


def show_printed(name: str) -> None:
    """Absolute times of TW's public benchmark beside those predicted of its kernels."""
    print(f"\nTW's benchmark on a V100, {PRINTED_N} tokens, us: printed, predicted for {name}")
    gpu = load_gpu(name)
    for (m, k), printed in PRINTED.items():
        dense, tiles = cutlass_seconds(m, k, PRINTED_N, gpu), per_tile_seconds(halved(m, k), PRINTED_N, gpu)
        parts = [
            f"{what} {us:.0f} {1e6 * t:.0f} ({1e8 * t / us - 100:+.0f} %)"
            for what, us, t in zip(("dense", "tiles"), printed, (dense, tiles), strict=True)
        ]
        print(f"{m} x {k}", *parts, f"ratio {printed[0] / printed[1]:.2f} {dense / tiles:.2f}", sep="  ")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="part of a system's name")
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    show(predicted, options.only, markdown=options.markdown)
    if options.only.lower() in "tw":
        show_printed("v100-pcie-16gb")


if __name__ == "__main__":
    main()

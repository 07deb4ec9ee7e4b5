"""`scaled_product`: predict the time of an fp8 product with scales, and of the passes that quantise x.

The kind of scales of x (`SCALES`) determines the passes that quantise it:

    tensor           one scale, computed for each x: a first pass finds the maximum, a second one rounds. In
                     the first pass one CTA per token updates the maximum by an atomic operation
    static           one scale from calibration: one pass, which rounds
    token            one scale for each token: one pass
    block            one scale for each token and 128 features: one pass
    fused            the preceding kernel writes x in fp8: no pass

The kernels (`FORMS`) are `cutlass` (for tensor, static and token scales, as in vLLM), `cutlass-128` (one tile
for all sizes) and `deepgemm` (block scales). Their tiles are in `tables/scaled_tiles.csv`, their constants in
`costs/sm_*.toml`.
"""

from collections.abc import Mapping
from functools import cache

from prunecast.errors import BadInput, check_choice
from prunecast.hardware.costs import Costs, load_costs
from prunecast.hardware.memory_pass import MemoryPass
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.libraries.call import LibraryCall
from prunecast.kernels.libraries.library_tables import rows_for
from prunecast.kernels.libraries.tiled import Tile, TiledWork, operand_reads, rates_of, tiled_time
from prunecast.plan.kernel_plan import DTYPE_BYTES, OUTPUT_BYTES
from prunecast.plan.tensor_rate import tensor_fma_per_clk

SCALES = ("tensor", "static", "token", "block", "fused")
FORMS: Mapping[str, str] = {"cutlass": "cutlass", "cutlass-128": "fixed", "deepgemm": "deepgemm"}
"""Kernel (form) -> prefix of the names of its constants in `costs/sm_*.toml`."""
FORM_OF: Mapping[str, str] = {**dict.fromkeys(SCALES, "cutlass"), "block": "deepgemm"}
"""Scales of x -> kernel (form) that engines use with them."""
INPUT_BYTES = 2
"""Bytes of an element of x before it is quantised. Kind: definition, bf16."""
ODD_FROM = 128
"""Tokens above which an odd number is slower. Kind: definition, tiles of 128 tokens in
`tables/scaled_tiles.csv`."""
MULTIPLYING_WARPS = 8
"""Warps of a CTA that multiply. Kind: definition, two warpgroups."""


def quantise_passes(
    k: int, n: int, scales: str, numbers: Costs | Mapping[str, float]
) -> tuple[MemoryPass, ...]:
    """Return the memory passes that quantise x (n tokens, k features) from bf16 to fp8.

    Parameters
    ----------
    scales : one of `SCALES`
    numbers : constants of the passes

    Raises
    ------
    BadInput : the scales are unknown
    """
    check_choice("scales", scales, SCALES)
    if scales == "fused":
        return ()
    read, written = float(INPUT_BYTES * n * k), float(DTYPE_BYTES["fp8"] * n * k)

    def row_pass(name: str, moved: float) -> MemoryPass:
        # One CTA per token processes the features of the token one chunk after the other
        return MemoryPass(
            copied_bytes=moved / numbers[f"{name}_share"],
            start_s=numbers[f"{name}_start_s"] + k * numbers[f"{name}_feature_s"],
            overlapped_s=n * numbers[f"{name}_token_s"],
        )

    rounding = row_pass("rounding", read + written)
    return (row_pass("maximum", read), rounding) if scales == "tensor" else (rounding,)


def scaled_product(
    m: int,
    k: int,
    n: int,
    gpu: GpuSpec,
    *,
    scales: str = "tensor",
    form: str | None = None,
    state: str = "burst",
    costs: Costs | Mapping[str, float] | None = None,
) -> LibraryCall:
    """Return the predicted time of C (m, n) = A (m, k) @ B (k, n) in fp8.

    The input x (B transposed) and C are bf16. The passes that quantise x are included.

    Parameters
    ----------
    scales : scales of x, one of `SCALES`
    form : kernel, one of `FORMS`; None for the kernel that engines use with these scales
    state : `burst` or `sustained`, which selects the clock
    costs : constants of the kernel; None for the constants of the GPU's architecture

    Raises
    ------
    BadInput : a size is below 1, the scales or the form are unknown, or the GPU has no fp8 tensor cores
    """
    if min(m, k, n) < 1:
        raise BadInput(f"a product needs m, k, n of at least 1, got {m}, {k}, {n}")
    form = check_choice("form of fp8", form or FORM_OF[check_choice("scales", scales, SCALES)], FORMS)
    tensor_fma_per_clk(gpu, "fp8", "wgmma")  # raises BadInput for GPUs without fp8 tensor cores
    numbers = costs if costs is not None else scaled_costs(gpu.compute_capability)
    name, tile = FORMS[form], tile_of(form, m, k, n, gpu)
    passes = quantise_passes(k, n, scales, numbers)
    work = TiledWork(
        tiles=float(-(-m // tile.rows) * -(-n // tile.tokens)),
        tile=tile,
        reads=operand_reads(tile, gpu, swaps=True),
        k=k,
        dtype="fp8",
        dram_bytes=float(DTYPE_BYTES["fp8"] * k * (m + n) + OUTPUT_BYTES["fp8"] * m * n),
        is_persistent=True,
    )
    product = tiled_time(work, rates_of(numbers, name), gpu, state=state)
    # Measured with unknown cause: half-filled tiles do not explain all of it
    is_odd = n % 2 == 1 and n > ODD_FROM
    product_s = product.seconds * (numbers[f"{name}_odd_tokens"] if is_odd else 1.0)
    parts = {
        "quantise": sum(each.seconds(gpu) for each in passes),
        "launch": numbers[f"{name}_launch_s"],
        "product": product_s,
    }
    case = f"{scales} scales" if form == FORM_OF[scales] else form
    bound = product.bound if parts["product"] >= 0.5 * sum(parts.values()) else "latency"
    return LibraryCall.of_parts("scaled", case, gpu, kernel=form, parts=parts, bound=bound)


def tile_of(form: str, m: int, k: int, n: int, gpu: GpuSpec) -> Tile:
    """Return the tile that a kernel uses for C (m, n) = A (m, k) @ B (k, n).

    Raises BadInput if `tables/scaled_tiles.csv` contains no such tile.
    """
    for row in rows_for("scaled_tiles", gpu.compute_capability):
        most_tokens, most_rows = (
            float("inf") if row[name] == "any" else int(row[name]) for name in ("most_tokens", "most_rows")
        )
        fits = int(row["least_tokens"]) <= n <= most_tokens and m <= most_rows and k >= int(row["least_k"])
        if row["form"] == form and fits:
            rows, tokens, step, multicast = (int(row[name]) for name in ("rows", "tokens", "k", "multicast"))
            return Tile(rows, tokens, step, MULTIPLYING_WARPS, multicast)
    raise BadInput(f"tables/scaled_tiles.csv: no tile of {form} for {n} tokens")


@cache
def scaled_costs(compute_capability: int) -> Costs:
    """Return the fitted constants of fp8 products, from `costs/sm_*.toml`."""
    return load_costs(__package__, compute_capability)

"""What `gpu_balanced_parts` leaves out of the balanced kernels, and of which products."""

from benchmarks.stamps.sources import Patches
from prunecast.validation.case import Case

__all__ = ["PATCHES", "part_cases", "variants"]

PATCHES: Patches = {
    "balanced/matrix.cu": [
        ("  let_next_start();\n", "  if (LET_NEXT) let_next_start();\n"),
        ("i < args.split_windows; ++i", "i < (STEPS ? STEPS : args.split_windows); ++i"),
        ("if (i + 1 < args.split_windows) {", "if (i + 1 < (STEPS ? STEPS : args.split_windows)) {"),
        ("      copy_tokens(args, shared, i + 1", "      if (COPY) copy_tokens(args, shared, i + 1"),
        ("    if (first + i < last) {\n", "    if (MULTIPLY && first + i < last) {\n"),
    ],
    "balanced/vector.cu": [
        ("  let_next_start();\n", "  if (LET_NEXT) let_next_start();\n"),
        ("  spread(args, banks);\n", "  if (COPY) spread(args, banks);\n"),
        ("begin < args.chunks; begin", "begin < (STEPS ? STEPS * AHEAD : args.chunks); begin"),
        ("if (later < args.chunks) ahead", "if (LATER && later < args.chunks) ahead"),
        (
            "sums[r] = fmaf(value(chunk, i), banks[32 * place(chunk, i) + lane], sums[r]);",
            "sums[r] = fmaf(value(chunk, i), MULTIPLY ? banks[32 * place(chunk, i) + lane]"
            " : __uint_as_float(place(chunk, i)), sums[r]);",
        ),
    ],
}
"""`STEPS` 0 is all of them."""

WHOLE = {"LET_NEXT": 1, "STEPS": 0, "COPY": 1, "MULTIPLY": 1}


def variants(*, one_token: bool) -> dict[str, dict[str, int]]:
    """Names of builds and their defines. Of one token `no_copies` leaves out B, `no_products` its reads from
    the banks.
    """
    whole = {**WHOLE, "LATER": 1} if one_token else WHOLE
    found = {
        "plain": {},
        "no_products": {"MULTIPLY": 0},
        "no_copies": {"COPY": 0},
        "neither": {"MULTIPLY": 0, "COPY": 0},
        "one_step": {"STEPS": 1},
        "alone": {"LET_NEXT": 0},
        **({"no_later": {"LATER": 0}} if one_token else {}),
    }
    return {name: {**whole, **changes} for name, changes in found.items()}


def part_cases() -> list[Case]:
    """The most telling first: sizes of rows, columns that not all splits have, density."""
    matrix = [
        ("2048x2048x24", 32, 0.875, "fp16"),
        ("2048x8192x16", 16, 0.9375, "fp16"),
        ("5120x1280x24", 32, 0.5, "fp16"),
        ("1280x1280x24", 64, 0.75, "fp16"),
        ("2048x2048x16", 64, 0.95, "fp16"),
        ("1024x1024x104", 16, 0.9375, "fp16"),
        ("1024x1024x40", 16, 0.9375, "fp16"),
        ("1280x1280x16", 64, 0.5, "fp16"),
        ("640x1280x16", 16, 0.875, "bf16"),
        ("2816x1024x24", 32, 0.625, "bf16"),
        ("384x1536x104", 16, 0.625, "bf16"),
        ("2048x2048x16", 64, 0.75, "fp16"),
        ("2048x2048x64", 32, 0.875, "fp16"),
        ("2048x2048x56", 32, 0.75, "fp16"),
        ("2560x2560x16", 64, 0.9375, "bf16"),
        ("8192x2048x104", 32, 0.9375, "fp16"),
        ("5120x5120x64", 32, 0.875, "fp16"),
        ("768x768x256", 64, 0.75, "fp16"),
        ("1024x4096x16", 64, 0.75, "fp16"),
        ("640x640x16", 64, 0.9, "fp16"),
        ("6144x4096x16", 32, 0.875, "bf16"),
        ("1024x1024x16", 64, 0.5, "fp16"),
        ("2048x2048x256", 64, 0.75, "fp16"),
    ]
    one_token = [
        ("8192x2048x1", 64, 0.5, "fp16"),
        ("1024x6144x1", 64, 0.9, "fp16"),
        ("3840x3840x1", 64, 0.9, "fp16"),
        ("4096x1024x1", 64, 0.75, "fp16"),
        ("8192x2048x1", 64, 0.9, "fp16"),
        ("384x1536x1", 64, 0.75, "fp16"),
        ("1024x1024x1", 64, 0.5, "fp16"),
        ("1024x6144x1", 64, 0.5, "fp16"),
        ("2048x2048x1", 64, 0.9, "fp16"),
        ("3840x3840x1", 64, 0.5, "fp16"),
        ("768x768x1", 64, 0.9, "fp16"),
        ("2048x2048x1", 64, 0.5, "fp16"),
    ]
    found = [*matrix[:8], *one_token[:4], *matrix[8:15], *one_token[4:8], *matrix[15:], *one_token[8:]]
    return [_case(*one) for one in found]


def _case(layer: str, segment: int, sparsity: float, dtype: str) -> Case:
    m, k, n = map(int, layer.split("x"))
    return Case(
        name=f"{layer} {dtype} balanced:{segment} {sparsity:g}",
        m=m,
        k=k,
        n=n,
        dtype=dtype,
        pattern=f"balanced:{segment}",
        sparsity=sparsity,
        distribution="equal",
        kernels=("balanced",),
        use="fit",
    )

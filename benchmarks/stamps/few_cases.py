"""What `gpu_trace_few` stamps: products of few tokens by kernel, with the suite's inputs."""

from prunecast.validation.case import Case

__all__ = [
    "KernelCase",
    "cases",
    "end_cases",
    "gap_cases",
    "place_cases",
    "short_cases",
    "step_cases",
]

KernelCase = tuple[str, Case]
"""A kernel's name, and what it runs."""


def cases() -> list[KernelCase]:
    """The most telling first."""
    found = [
        _balanced(m, k, sparsity)
        for m, k, sparsity in (
            *((1024, 1024, share) for share in (0.9, 0.75, 0.5)),
            *((2048, 2048, share) for share in (0.9, 0.5, 0.95)),
            *((384, 1536, share) for share in (0.9, 0.75, 0.5)),
            *((4096, 1024, share) for share in (0.9, 0.75)),
            *((8192, 2048, share) for share in (0.9, 0.5, 0.75)),
            *((768, 768, 0.9), (1024, 6144, 0.9), (512, 2048, 0.9), (3840, 3840, 0.9)),
        )
    ]
    small = [
        _small(11008, 4096, 16, 128, 0.5),
        _small(11008, 4096, 1, 128, 0.5),
        _small(1024, 4096, 1, 64, 0.75),
        _small(1024, 4096, 16, 128, 0.75),
        _small(768, 3072, 16, 128, 0.75),
        _small(768, 768, 1, 64, 0.75),
        _small(3072, 768, 1, 128, 0.9),
        _small(4096, 4096, 32, 128, 0.9),
        _small(11008, 4096, 32, 64, 0.75),
        _small(11008, 4096, 16, 128, 0.75),
        _small(4096, 4096, 1, 128, 0.75),
        _small(768, 3072, 4, 128, 0.9),
    ]
    return [one for pair in zip(found, small, strict=False) for one in pair] + found[len(small) :]


def step_cases() -> list[KernelCase]:
    """Of which single steps are wanted."""
    found = [
        _balanced(m, k, sparsity, n, segment)
        for m, k, n, segment, sparsity in (
            *((2048, 2048, 24, 32, 0.875), (1280, 1280, 24, 64, 0.75), (640, 2560, 24, 64, 0.875)),
            *((1280, 1280, 4, 64, 0.5), (5120, 1280, 24, 32, 0.5), (5120, 1280, 4, 32, 0.625)),
            *((2048, 2048, 16, 64, share) for share in (0.95, 0.9, 0.75)),
            *((8192, 2048, 1, 64, 0.5), (4096, 1024, 1, 64, 0.9), (768, 768, 256, 64, 0.75)),
        )
    ]
    return [
        *found,
        _small(11008, 4096, 1, 128, 0.5),
        _small(768, 3072, 4, 128, 0.9),
        _small(4096, 11008, 4, 128, 0.75),
        _small(768, 3072, 1, 128, 0.9, "lognormal:0.4"),
    ]


def place_cases() -> list[KernelCase]:
    """Launches of 12 to 128 blocks."""
    found = [
        _balanced(m, k, sparsity)
        for m, k, sparsity in (
            *((384, 1536, share) for share in (0.9, 0.75, 0.5)),
            *((768, 768, share) for share in (0.9, 0.5)),
            *((512, 2048, 0.9), (1024, 1024, 0.9), (640, 640, 0.9), (896, 896, 0.9), (1536, 1536, 0.9)),
            *((2048, 2048, 0.9), (4096, 1024, 0.9), (3840, 3840, 0.9), (256, 2048, 0.9), (1280, 1280, 0.75)),
        )
    ]
    return [
        *found,
        _small(768, 3072, 4, 128, 0.9),
        _small(768, 768, 1, 64, 0.75),
        _small(1024, 4096, 16, 128, 0.75),
        _small(3072, 768, 1, 128, 0.9),
        _small(768, 768, 32, 128, 0.9),
        _small(11008, 4096, 1, 128, 0.5),
        _small(2048, 5632, 24, 128, 0.8, "lognormal:0.6"),
        _small(5120, 1280, 48, 64, 0.8, "lognormal:0.6"),
        _small(1280, 5120, 5, 64, 0.8, "lognormal:0.6"),
        _small(768, 3072, 1, 128, 0.9, "lognormal:0.4"),
        _small(4096, 4096, 16, 128, 0.75, "lognormal:0.4"),
        _small(11008, 4096, 64, 128, 0.75, "lognormal:0.4"),
        _small(5120, 1280, 5, 128, 0.8, "lognormal:0.6"),
        _small(2048, 5632, 1, 64, 0.8, "lognormal:0.6"),
    ]


def end_cases() -> list[KernelCase]:
    """Launches whose SMs have unequal work, or that fill DRAM."""
    found = [
        _balanced(m, k, sparsity, n, segment)
        for m, k, n, segment, sparsity in (
            *((8192, 2048, 1, 64, share) for share in (0.5, 0.75, 0.9)),
            *((384, 1536, 1, 64, share) for share in (0.75, 0.5)),
            *((1024, 6144, 1, 64, share) for share in (0.9, 0.5)),
            *((4096, 1024, 1, 64, 0.5), (2048, 2048, 1, 64, 0.5), (3840, 3840, 1, 64, 0.5)),
            *((2048, 2048, 24, 32, 0.875), (1280, 1280, 24, 64, 0.75)),
        )
    ]
    small = [
        *(_small(11008, 4096, n, 128, 0.5) for n in (16, 1, 4)),
        _small(4096, 4096, 4, 128, 0.5),
        _small(4096, 11008, 4, 128, 0.75),
        _small(11008, 4096, 16, 128, 0.75),
        _small(5120, 1280, 12, 128, 0.95),
        _small(2048, 5632, 24, 128, 0.8, "lognormal:0.6"),
        _small(5120, 1280, 48, 64, 0.8, "lognormal:0.6"),
        _small(768, 3072, 1, 128, 0.9, "lognormal:0.4"),
        _small(5120, 1280, 5, 128, 0.8, "lognormal:0.6"),
        _small(4096, 4096, 16, 128, 0.75, "lognormal:0.4"),
    ]
    return [one for pair in zip(found, small, strict=True) for one in pair]


def short_cases() -> list[KernelCase]:
    """Of the small-n kernel: one k16 a warp, odd tokens, some blocks early, tokens between two widths."""
    return [
        _small(5120, 1280, 12, 128, 0.95),
        _small(768, 768, 9, 128, 0.75),
        _small(5120, 1280, 1, 64, 0.3),
        _small(5120, 5120, 5, 64, 0.95),
        _small(3072, 768, 17, 128, 0.75),
        _small(2560, 2560, 32, 256, 0.55),
        _small(3072, 768, 16, 128, 0.9),
        _small(1024, 4096, 20, 256, 0.2),
        _small(5120, 1280, 5, 128, 0.95),
        _small(768, 3072, 1, 128, 0.9, "lognormal:0.4"),
    ]


def gap_cases() -> list[KernelCase]:
    """Of more tokens, by how many blocks: all there before, some, and almost none."""
    return [
        _balanced(m, k, sparsity, n, segment)
        for m, k, n, segment, sparsity in (
            *((2560, 2560, 16, 64, 0.9375), (1280, 1280, 24, 64, 0.75), (640, 640, 16, 64, 0.9)),
            *((640, 640, 256, 64, 0.9), (2048, 2048, 16, 64, 0.95), (768, 768, 256, 64, 0.75)),
            *((1024, 1024, 16, 64, 0.5), (8192, 2048, 104, 32, 0.9375), (1280, 1280, 16, 64, 0.5)),
            *((384, 1536, 16, 32, 0.625), (1024, 1024, 40, 16, 0.9375), (2816, 1024, 24, 32, 0.625)),
            *((2048, 2048, 24, 32, 0.875), (1152, 1152, 144, 16, 0.875), (1024, 1024, 104, 16, 0.9375)),
        )
    ]


def _balanced(m: int, k: int, sparsity: float, n: int = 1, segment: int = 64) -> KernelCase:
    return _case("balanced", (m, k, n), f"balanced:{segment}", sparsity, "equal")


def _small(m: int, k: int, n: int, rows: int, sparsity: float, distribution: str = "equal") -> KernelCase:
    return _case("small-n", (m, k, n), f"tile-wise:{rows}", sparsity, distribution)


def _case(
    kernel: str, layer: tuple[int, int, int], pattern: str, sparsity: float, distribution: str
) -> KernelCase:
    m, k, n = layer
    case = Case(
        name=f"{m}x{k}x{n} {pattern} {sparsity:g}",
        m=m,
        k=k,
        n=n,
        dtype="fp16",
        pattern=pattern,
        sparsity=sparsity,
        distribution=distribution,
        kernels=(kernel,),
        use="fit",
    )
    return kernel, case

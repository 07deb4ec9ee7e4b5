"""Header and case of a recorded run, as small as they can be."""

from prunecast.validation.case import Case
from prunecast.validation.records import RunHeader

HEADER = RunHeader(
    gpu="h200-sxm",
    suite="tiny",
    suite_fingerprint="0" * 16,
    date="2026-11-20T00:00:00+00:00",
    device={"name": "x"},
    versions={"commit": "c"},
    protocol={"turns": 7},
)
CASE = Case(
    name="c",
    m=256,
    k=256,
    n=128,
    dtype="fp16",
    pattern="tile-wise:128",
    sparsity=0.5,
    kernels=("stspmm",),
    use="judge",
)

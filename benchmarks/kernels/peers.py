"""What else can be installed, on the same pruned weights: Triton block-sparse, cuBLAS.

    python -m benchmarks.kernels.peers --out DIR [--state burst,sustained] [--l2 cold,warm]

Block-sparse in Triton has blocks of 64 x 64, 75 %, tuned by Triton itself; cuSPARSE is in the suites of
`prunecast validate`, cuSPARSELt in `benchmarks.kernels.vendors`. A peer that cannot be imported is named and
left out. Results are checked against float64 on sampled rows before any time counts. Writes DIR/peers.json.
"""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import cupy as cp
import numpy as np

from benchmarks.on_gpu.rotation import cublas_contestant
from benchmarks.on_gpu.timing import L2, STATES, Contestant, contestant, sets_for, take_turns

LAYERS = ((4096, 4096, 256), (4096, 4096, 2048), (11008, 4096, 2048), (768, 3072, 4096))
BLOCK = 64
CHECKED_ROWS = 32


class Peer(NamedTuple):
    """Something that multiplies pruned weights."""

    name: str
    dtype: str
    mask: Callable[[int, int, np.random.Generator], np.ndarray]
    build: Callable[[Any, list[Any]], Callable[[int], Any]]
    """(A pruned (M, K), B of every set) -> the product with set i, (M, N)."""


def _blocks(m: int, k: int, rng: np.random.Generator) -> np.ndarray:
    """A quarter of the blocks, equally many in every row of blocks."""
    kept = rng.random((m // BLOCK, k // BLOCK)).argsort(axis=1) < k // BLOCK // 4
    return np.kron(kept, np.ones((BLOCK, BLOCK), bool))


def _triton_blocks(a: Any, bs: list[Any]) -> Callable[[int], Any]:
    from benchmarks.on_gpu.triton_blocks import block_sparse

    return block_sparse(a, bs, BLOCK)


PEERS = (Peer("Triton blocks 64x64 fp16, 75 %", "float16", _blocks, _triton_blocks),)


def _inputs(layer: tuple[int, int, int], peer: Peer, count: int) -> tuple[Any, list[Any]]:
    m, k, n = layer
    rng = np.random.default_rng([m, k])
    random = cp.random.RandomState(1)
    a = random.standard_normal((m, k), dtype=cp.float32) * cp.asarray(peer.mask(m, k, rng))
    bs = [random.standard_normal((k, n), dtype=cp.float32).astype(peer.dtype) for _ in range(count)]
    return a.astype(peer.dtype), bs


def _error(a: Any, b: Any, c: Any) -> float:
    """Largest |error| of some rows over the largest |element|."""
    rows = cp.arange(0, a.shape[0], max(a.shape[0] // CHECKED_ROWS, 1))
    wanted = a[rows].astype(cp.float64) @ b.astype(cp.float64)
    own = cp.from_dlpack(c.contiguous()) if hasattr(c, "contiguous") else c
    return float(cp.abs(own[rows].astype(cp.float64) - wanted).max() / cp.abs(wanted).max())


def _peer_contestant(peer: Peer, layer: tuple[int, int, int], stream: Any, l2: str) -> Contestant:
    """Torch works on the same stream, so that a graph captures it."""
    m, k, n = layer
    item = np.dtype(peer.dtype).itemsize
    count = sets_for(item * (m * k / 4 + k * n + m * n), l2)
    a, bs = _inputs(layer, peer, count)
    run = _on(stream, peer.build(a, bs))
    error = _error(a, bs[0], run(0))
    if not error < (1e-4 if item == 4 else 4e-3):
        raise RuntimeError(f"wrong by {error:.3g}")
    return contestant(peer.name, stream, run, sets=count)


def _on(stream: Any, run: Callable[[int], Any]) -> Callable[[int], Any]:
    import torch

    external = torch.cuda.ExternalStream(stream.ptr)

    def launch(i: int) -> Any:
        with torch.cuda.stream(external):
            return run(i)

    return launch


def _dense(layer: tuple[int, int, int], dtype: str, stream: Any, l2: str) -> list[Contestant]:
    m, k, n = layer
    random = cp.random.RandomState(2)
    shapes = ((m, k), (k, n), (m, n))
    count = sets_for(np.dtype(dtype).itemsize * (m * k + k * n + m * n), l2)
    sets = [
        tuple(random.standard_normal(shape, dtype=cp.float32).astype(dtype) for shape in shapes)
        for _ in range(count)
    ]
    found = [cublas_contestant(stream, sets, token_major=major) for major in (False, True)]
    return [c._replace(name=f"{c.name} {dtype}") for c in found]


def _time_layer(
    layer: tuple[int, int, int], stream: Any, options: argparse.Namespace
) -> list[dict[str, Any]]:
    entries = []
    for l2 in options.l2.split(","):
        contestants = [c for dtype in ("float16", "float32") for c in _dense(layer, dtype, stream, l2)]
        for peer in PEERS:
            try:
                contestants.append(_peer_contestant(peer, layer, stream, l2))
            except Exception as reason:  # whatever a library raises, the others go on
                print(f"{peer.name} at {layer} left out: {type(reason).__name__} {str(reason)[:90]}")
        for state in options.state.split(","):
            samples = take_turns(stream, contestants, options.turns, state)
            for peer in PEERS:
                if peer.name in samples:
                    dense = min(s.median for name, s in samples.items() if name.endswith(peer.dtype))
                    own = samples[peer.name]
                    entries.append(_entry(layer, peer, state, l2, own, dense))
    return entries


def _entry(
    layer: tuple[int, int, int], peer: Peer, state: str, l2: str, own: Any, dense: float
) -> dict[str, Any]:
    entry = {
        "layer": "x".join(map(str, layer)),
        "peer": peer.name,
        "state": state,
        "l2": l2,
        "us": own.median * 1e6,
        "dense_us": dense * 1e6,
        "speedup": dense / own.median,
        "seconds": own.seconds,
    }
    print(
        f"{entry['layer']:<18} {peer.name:<32} {state} {l2}: {entry['us']:9.1f} us, "
        f"dense {entry['dense_us']:8.1f} us, {entry['speedup']:.2f}x",
        flush=True,
    )
    return entry


def main() -> int:
    """Check, time, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--layers", type=int, default=len(LAYERS), help="how many")
    parser.add_argument("--state", default="burst", help=f"of {', '.join(STATES)}")
    parser.add_argument("--l2", default="cold", help=f"of {', '.join(L2)}")
    options = parser.parse_args()
    entries: list[dict[str, Any]] = []
    stream = cp.cuda.Stream(non_blocking=True)
    for layer in LAYERS[: options.layers]:
        with stream:
            entries += _time_layer(layer, stream, options)
        stream.synchronize()
        cp.get_default_memory_pool().free_all_blocks()
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "peers.json").write_text(json.dumps({"cases": entries}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())

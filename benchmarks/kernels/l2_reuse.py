"""What share of a working set an H200's L2 keeps between reads, by footprint, reading SMs and bytes written.

    python -m benchmarks.kernels.l2_reuse --out DIR

Rounds of reads of the same rows by all SMs, slow enough for each read's latency to say where it was found,
beside a stream of writes. Writes DIR/reuse.json.
"""

import argparse
import itertools
import json
from pathlib import Path

import numpy as np

from prunecast.kernels.device.build import compile_cubin
from prunecast.validation.measure.sources import MICROBENCHMARKS

SOURCE = MICROBENCHMARKS / "reuse.cu"
MIB = 1 << 20
ROW_BYTES = 512
BINS = 64
BIN_CYCLES = 50
WARPS = 4
ROUNDS, COUNTED = 7, 3
POOL_MIB, STREAM_MIB = 160, 1024
FOOTPRINTS_MIB = (8, 16, 24, 28, 32, 36, 40, 44, 48, 52, 56, 64)
WRITTEN_MIB = (0, 8, 16)
"""Of a round."""
SHARERS = (1, 4, 12, 22, 44, 132)


def run(out: Path) -> None:
    """Every footprint; prints latencies' quartiles and the share beyond twice the smallest's median."""
    import cupy as cp

    kernel = cp.RawModule(path=str(compile_cubin(SOURCE, "sm_90a", {}).cubin)).get_function("reuse")
    sms = int(cp.cuda.Device().attributes["MultiProcessorCount"])
    pool = cp.random.RandomState(1).randint(0, (1 << 31) - 1, POOL_MIB * MIB // 4, dtype=np.int32)
    stream = cp.zeros(STREAM_MIB * MIB // 4, cp.int32)
    record = []
    for sharers, written, mib in itertools.product(SHARERS, WRITTEN_MIB, FOOTPRINTS_MIB):
        counts, arrived = cp.zeros(BINS, cp.uint32), cp.zeros(1, cp.uint32)
        rows = written * MIB // (ROW_BYTES * WARPS * sms)
        args = (pool, stream, mib * MIB // ROW_BYTES, sharers, rows, ROUNDS, COUNTED, 0)
        kernel((sms,), (32 * WARPS,), (*args[:2], *map(np.uint32, args[2:]), counts, arrived))
        found = counts.get().astype(np.int64)
        record.append({"sharers": sharers, "written_mib": written, "mib": mib, "counts": found.tolist()})
        total = np.cumsum(found) / max(found.sum(), 1)
        quartiles = [BIN_CYCLES * int(np.searchsorted(total, q)) for q in (0.1, 0.5, 0.9)]
        beyond = 1.0 - total[[9, 11, 13, 15]]
        print(
            f"sharers {sharers:2d} written {written:2d} MiB of {mib:3d} read: {quartiles} cycles,"
            f" beyond 500, 600, 700, 800: {np.round(beyond, 3)}",
            flush=True,
        )
    (out / "reuse.json").write_text(json.dumps(record))


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path())
    run(parser.parse_args().out)


if __name__ == "__main__":
    main()

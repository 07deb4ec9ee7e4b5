"""How fast warps come through straight code: run for the first time in a launch, and again.

python -m benchmarks.gpu_fetch build FOLDER         without a GPU
python -m benchmarks.gpu_fetch run FOLDER OUT.json
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from prunecast.kernels.cuda.build import compile_cubin

SOURCE = Path(__file__).parent / "gpu_fetch.cu"
ROUNDS, LAUNCHES = 3, 6
"""Of a launch, each of which runs all of the code; launches, of which the first one finds no code at all."""


def measure(kernel: Any, blocks: int, warps: int) -> dict[str, Any]:
    """Median cycles of each 128 instructions: by launch (first and later ones) and round."""
    import cupy as cp

    times, out = cp.zeros((LAUNCHES, blocks, warps, ROUNDS, 8), cp.uint32), cp.zeros(1, cp.float32)
    for launch in range(LAUNCHES):
        args = (times[launch], out, np.int32(ROUNDS), np.float32(0.5), np.float32(0.25))
        kernel((blocks,), (32 * warps,), args)
    cp.cuda.Device().synchronize()
    found = np.median(times.get().astype(np.int64), axis=(1, 2))
    later = np.median(found[1:], axis=0)
    return {
        "blocks": blocks,
        "warps": warps,
        "first_launch": found[0].astype(int).tolist(),
        "later": later.astype(int).tolist(),
    }


def main() -> None:
    """Build or run."""
    cubin = compile_cubin(SOURCE, "sm_90", {}, folder=Path(sys.argv[2])).cubin
    if sys.argv[1] == "build":
        print(cubin)
        return
    import cupy as cp

    kernel = cp.RawModule(path=str(cubin)).get_function("fetch")
    records = [measure(kernel, blocks, warps) for blocks in (8, 132) for warps in (1, 4, 8, 16)]
    for record in records:
        print(record["blocks"], record["warps"], "first", record["first_launch"], "later", record["later"])
    Path(sys.argv[3]).write_text(json.dumps(records))


if __name__ == "__main__":
    main()

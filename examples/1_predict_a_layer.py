"""One layer, all kernels: is 75 % sparsity worth anything at this size?"""

import numpy as np

import prunecast

weights = np.random.default_rng(0).normal(size=(4096, 1024)).astype(np.float16)
table = prunecast.predict(weights, gpu="h200-sxm", tokens=4096, sparsity=0.75)
for row in table:
    low, high = 1e6 * row.seconds_low, 1e6 * row.seconds_high
    print(f"{row.kernel:13} {row.latency_us:7.1f} us ({low:.1f} to {high:.1f})  {row.bound}")
for found in table.crossovers:
    if found.density is not None:
        print(f"{found.kernel} beats dense below {found.density:.0%} density")

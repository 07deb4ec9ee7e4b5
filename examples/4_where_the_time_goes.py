"""Stalls and losses of one simulated launch, and what the busiest SM does beside the mean one."""

import numpy as np

import prunecast
from prunecast.choice import fastest_plan
from prunecast.patterns import parse_pattern

rng = np.random.default_rng(0)
importance = np.abs(rng.normal(size=(2048, 2048)) * rng.lognormal(sigma=1.0, size=(2048, 1)))
gpu = prunecast.load_gpu("h200-sxm")
for text in ("tile-wise:128", "atp:128x16x97-103"):
    pattern = parse_pattern(text)
    tiles = pattern.map(pattern.prune({"layer": importance}, 0.75)["layer"])
    result = prunecast.simulate(fastest_plan("stspmm", tiles, 4096, "fp16", gpu), gpu)
    work = result.sm_tensor_cycles
    print(f"{text}: {1e6 * result.seconds:.1f} us, SMs {work.max() / work.mean():.2f} times the mean at most")
    for name, seconds in result.attribution_s.items():
        print(f"  {name:15} {1e6 * seconds:6.2f} us")

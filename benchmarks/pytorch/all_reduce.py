"""Measure all-reduce sums over the GPUs of a node, as engines with tensor parallelism run them.

python -m benchmarks.pytorch.all_reduce OUT.csv

One process for each GPU. Each call is repeated in a CUDA graph. `nccl` is NCCL's kernel; `one-shot` reads the
tensors of all other GPUs directly, `two-shot` sums a part of each tensor and gathers the parts. NVLink
multicast stays off.
"""

import csv
import os
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import multiprocessing

KINDS = ("nccl", "one-shot", "two-shot")
KIB = 1 << 10
SIZES = tuple(8 * KIB << step for step in range(16))
"""Bytes of the tensor, 8 KiB to 256 MiB."""
CALLS, REPLAYS = 20, 9
"""Calls of one graph, and replays of which the median counts."""
MOST_DIRECT = 64 << 20
"""Bytes up to which the direct kernels are measured."""


def _call(kind: str, elements: int) -> Callable[[], object]:
    import torch.distributed._symmetric_memory as symmetric

    group = dist.group.WORLD
    assert group is not None
    if kind == "nccl":
        own = torch.randn(elements, dtype=torch.bfloat16, device="cuda")
        return lambda: dist.all_reduce(own)
    shared = symmetric.empty(elements, dtype=torch.bfloat16, device="cuda")
    symmetric.rendezvous(shared, group.group_name)
    shared.normal_()
    if kind == "one-shot":
        return lambda: torch.ops.symm_mem.one_shot_all_reduce(shared, "sum", group.group_name)
    return lambda: torch.ops.symm_mem.two_shot_all_reduce_(shared, "sum", group.group_name)


def _is_right(kind: str, world: int) -> bool:
    """Return whether the sum of known numbers is right."""
    elements = 4096
    import torch.distributed._symmetric_memory as symmetric

    group = dist.group.WORLD
    assert group is not None
    own = symmetric.empty(elements, dtype=torch.bfloat16, device="cuda")
    symmetric.rendezvous(own, group.group_name)
    own.fill_(1.0 + dist.get_rank())
    dist.barrier()
    torch.cuda.synchronize()
    if kind == "nccl":
        dist.all_reduce(own)
        found = own
    elif kind == "one-shot":
        found = torch.ops.symm_mem.one_shot_all_reduce(own, "sum", group.group_name)
    else:
        torch.ops.symm_mem.two_shot_all_reduce_(own, "sum", group.group_name)
        found = own
    torch.cuda.synchronize()
    return bool((found == world * (world + 1) / 2).all())


def _seconds(call: Callable[[], object]) -> float:
    """Return the median seconds of a call in a replayed graph."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    dist.barrier()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(CALLS):
            call()
    times = []
    for _ in range(REPLAYS):
        dist.barrier()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        graph.replay()
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e-3 / CALLS)
    return sorted(times)[REPLAYS // 2]


def _measure(rank: int, world: int, out: str) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=world, device_id=torch.device("cuda", rank))
    rows = []
    for kind in KINDS:
        if not _is_right(kind, world):
            raise SystemExit(f"{kind}: wrong sum")
        for size in SIZES:
            if kind != "nccl" and size > MOST_DIRECT:
                continue
            seconds = torch.tensor(_seconds(_call(kind, size // 2)), device="cuda")
            dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
            rows.append((torch.cuda.get_device_name(), world, kind, size, f"{float(seconds):.4e}"))
            if rank == 0:
                print(*rows[-1], flush=True)
                with Path(out).open("w", encoding="utf-8", newline="") as file:
                    table = csv.writer(file)
                    table.writerow(("gpu", "gpus", "kind", "bytes", "seconds"))
                    table.writerows(rows)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    count = torch.cuda.device_count()
    multiprocessing.spawn(_measure, args=(count, sys.argv[1]), nprocs=count)

"""`collective`: predict the time of an all-reduce or all-gather over the GPUs of a node (tensor parallelism).

`all reduce`: each GPU gets the sum of the tensors of all GPUs. `all gather`: each GPU gets the parts of all.
If the result has b bytes and there are G GPUs, each GPU sends over its links

    one-shot            (G - 1) b          it sends its tensor to each other GPU
    two-shot, NCCL      2 (G - 1) / G b    it sums its part of all tensors, and sends the sum to all
    all gather          (G - 1) / G b

    t = start + (G - 2) hop + sent / (share * link rate)

One-shot and two-shot kernels read the memory of other GPUs directly, over NVLink. NCCL has a protocol of low
latency and one of high bandwidth. The fastest algorithm is assumed, because engines choose the algorithm by
size. The constants (start, hop, share) are in `costs/sm_*.toml`. All GPUs are assumed to start a launch at
the same time, and the launch overlaps with nothing else.
"""

from collections.abc import Mapping
from typing import NamedTuple

from prunecast.errors import BadInput, check_choice
from prunecast.hardware.costs import Costs, load_costs
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.libraries.call import LibraryCall

MOST_GPUS = 8
"""GPUs of a node. Kind: definition, HGX boards have eight."""
MOST_DIRECT = 64 << 20
"""Bytes up to which engines use one-shot and two-shot kernels. Kind: definition, the communication buffers of
engines are no larger."""
MOST_PCIE = 64e9
"""Bytes per second of the fastest PCIe link, over which no kernel reads the memory of another GPU. Kind:
definition, PCIe 5.0 x16."""


class CollectiveKernel(NamedTuple):
    """Algorithm that combines a tensor over several GPUs."""

    kind: str
    """`all reduce` or `all gather`."""
    costs: str
    """Prefix of the names of the algorithm's constants in `costs/sm_*.toml`."""
    rounds: int
    """Number of times (1 or 2) that each GPU sends a part of 1 / G of the tensor to every other GPU; 0 if it
    sends the whole tensor to every other GPU once."""
    is_direct: bool

    def sent(self, size: float, gpus: int) -> float:
        """Return the bytes that each of `gpus` GPUs sends, for a result of `size` bytes."""
        return (gpus - 1) * size * (self.rounds / gpus if self.rounds else 1.0)

    def parts(
        self, size: float, gpus: int, link_rate: float, numbers: Costs | Mapping[str, float]
    ) -> dict[str, float]:
        """Return the seconds of the start (`launch`) and of the transfer (`link`).

        Parameters
        ----------
        size : bytes of the result
        link_rate : peak rate of a GPU's links in one direction, bytes/s
        numbers : constants of the algorithms
        """
        hops = (gpus - 2) * numbers[f"{self.costs}_hop_s"]
        return {
            "launch": numbers[f"{self.costs}_start_s"] + hops,
            "link": self.sent(size, gpus) / (numbers[f"{self.costs}_share"] * link_rate),
        }


KERNELS: Mapping[str, CollectiveKernel] = {
    "one-shot": CollectiveKernel("all reduce", "one_shot", 0, is_direct=True),
    "two-shot": CollectiveKernel("all reduce", "two_shot", 2, is_direct=True),
    "NCCL, low latency": CollectiveKernel("all reduce", "nccl_latency", 2, is_direct=False),
    "NCCL": CollectiveKernel("all reduce", "nccl", 2, is_direct=False),
    "NCCL gather": CollectiveKernel("all gather", "gather", 1, is_direct=False),
}
"""Algorithm name -> algorithm. Kind: definition, the rounds that each algorithm has."""
KINDS = tuple(dict.fromkeys(form.kind for form in KERNELS.values()))


def check_gpus(gpus: int, gpu: GpuSpec) -> None:
    """Raise BadInput unless `gpus` is 1, 2, 4 or 8, and 1 for a GPU that has no links to others."""
    if not 1 <= gpus <= MOST_GPUS or gpus & (gpus - 1):
        raise BadInput(f"tensor-parallel must be 1, 2, 4 or 8 GPUs of a node, got {gpus}")
    if gpus > 1 and not gpu.link_bytes_per_s:
        raise BadInput(
            f"tensor-parallel must be 1 on {gpu.name}, which has no link to another GPU, got {gpus}"
        )


def collective(
    kind: str,
    size: float,
    gpus: int,
    gpu: GpuSpec,
    *,
    forms: tuple[str, ...] = tuple(KERNELS),
    costs: Costs | Mapping[str, float] | None = None,
) -> LibraryCall:
    """Return the call that combines a tensor over the GPUs of a node, by the fastest algorithm.

    Parameters
    ----------
    kind : `all reduce` or `all gather`
    size : bytes of the result on each GPU
    gpus : number of GPUs: 2, 4 or 8
    forms : algorithms to choose from, names of `KERNELS`
    costs : constants of the algorithms; None for the constants of the GPU's architecture

    Raises
    ------
    BadInput : an unknown kind, another number of GPUs, or a GPU without links
    """
    check_choice("collective", kind, KINDS)
    check_gpus(gpus, gpu)
    numbers = costs if costs is not None else load_costs(__package__, gpu.compute_capability)
    may_read_others = gpu.link_bytes_per_s > MOST_PCIE and size <= MOST_DIRECT
    parts_of = {
        name: KERNELS[name].parts(size, gpus, gpu.link_bytes_per_s, numbers)
        for name in forms
        if KERNELS[name].kind == kind and (may_read_others or not KERNELS[name].is_direct)
    }
    name = min(parts_of, key=lambda one: sum(parts_of[one].values()))
    parts = parts_of[name]
    bound = "link" if parts["link"] > parts["launch"] else "latency"
    case = f"{kind}, {gpus} GPUs"
    return LibraryCall.of_parts("collectives", case, gpu, kernel=name, parts=parts, bound=bound)

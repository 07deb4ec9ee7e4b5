"""The time of what is no product with weights: in an engine, and in torch; what sparse products add or save.

In an engine it is the larger of traffic and arithmetic. A tensor that fits into the usable L2 is still there
when its reader comes, so it moves at L2 speed; a larger one goes through DRAM. Fused attention multiplies and
takes an exponential of every score: see `attention_seconds`.

In torch every launch of a `torch_form` has a time. An element-wise kernel takes what it moves, at a share of
the GPU's copy rate that goes with its kind, and a beginning. Attention is cuDNN's. The numbers are fitted to
traces, see `costs/sm_90.toml`.

Around sparse products: an activation between two of them is the first one's epilogue, which writes C as the
second one reads it; so is a gated unit whose gate and up are one product, and have the same tiles. X of any
other sparse product is turned, by a launch of its own, or, where it is small, by the norm that makes it. A
large C is added to the residual by its product, and the norm behind it reads the sum.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from prunecast.hardware import GpuSpec, MemoryPass, sm_clock_hz
from prunecast.hardware.costs import load_costs
from prunecast.workload.graph.layouts import PASSES, ImageForm, Transpose
from prunecast.workload.graph.model_graph import ModelGraph, Operation

ELEMENT_BYTES = 2
"""Tensors of whole models are of half precision."""

PRODUCT_SHARE = 0.6
"""Share of the dense tensor rate that a product of two activations reaches, of one head after the other."""

EXPONENTIALS_PER_CLK_PER_SM = 16
"""CUDA C++ Programming Guide, throughput of native arithmetic instructions: 7.5 to 9.0 alike."""


def other_seconds(operation: Operation, gpu: GpuSpec, *, launch_s: float) -> float:
    """Seconds of an operation that is neither input nor product, one launch of each copy included."""
    if operation.kind == "input":
        return 0.0
    work = MemoryPass(
        copied_bytes=(operation.elements_in + operation.elements_out) * ELEMENT_BYTES,
        one_way_bytes=operation.elements_cached * ELEMENT_BYTES,
        start_s=launch_s,
        overlapped_s=_tensor_seconds(operation, gpu),
    )
    return operation.runs * work.seconds(gpu)


def transpose_seconds(
    elements: int, gpu: GpuSpec, *, element_bytes: int = ELEMENT_BYTES, launch_s: float
) -> float:
    """Seconds of changing the layout of a tensor: read once, written once, one launch."""
    return MemoryPass(copied_bytes=2 * elements * element_bytes, start_s=launch_s).seconds(gpu)


def tensor_flops_per_s(gpu: GpuSpec, share: float, *, duty: float | None = None) -> float:
    """Return `share` of the dense tensor rate, at the burst clock of `duty`, by default that share."""
    clock_hz = sm_clock_hz(
        gpu, tensor_duty=share if duty is None else duty, l2_bytes_per_clk_per_sm=0.0, state="burst"
    )
    return share * 2.0 * gpu.tensor_fp16_fma_per_clk_per_sm * gpu.sm_count * clock_hz


def _tensor_seconds(operation: Operation, gpu: GpuSpec) -> float:
    if operation.flops == 0.0:
        return 0.0
    if operation.head_width:
        return attention_seconds(operation, gpu)
    return operation.flops / tensor_flops_per_s(gpu, PRODUCT_SHARE)


MEAN_DUTY = 0.5
"""Tensor duty of attention in torch, for the clock. Kind: fitted, with its other numbers."""


class AttentionWork(NamedTuple):
    """Seconds of fused attention at the whole tensor rate."""

    multiplying: float
    """Products and exponentials, of which neither hides the other."""
    per_key: float
    """Seconds for each of the keys in whose time a tile of queries starts and ends."""


def attention_work(o: Operation, gpu: GpuSpec, *, duty: float | None = None) -> AttentionWork:
    """Return the work of attention. A score needs 4 `head_width` operations of the tensor cores and one
    exponential.

    Parameters
    ----------
    duty : tensor duty that sets the clock; None for the share of time that the products need
    """
    per_clk = 2.0 * gpu.tensor_fp16_fma_per_clk_per_sm
    exponentials = per_clk / (4.0 * o.head_width * EXPONENTIALS_PER_CLK_PER_SM)
    share = 1.0 / (1.0 + exponentials)
    per_flop_s = 1.0 / tensor_flops_per_s(gpu, share, duty=duty)
    return AttentionWork(o.flops * per_flop_s, 4.0 * o.elements_out * per_flop_s)


def attention_seconds(operation: Operation, gpu: GpuSpec) -> float:
    """Return the seconds of fused attention in an engine, its launch excluded.

    With 16384 keys and heads of 64, 128 and 256 features this gives 479, 629 and 746 TFLOP/s, where the best
    kernels reached 497, 648 and 756 on an H100; with 512 keys 335, 440 and 522, measured 340, 497 and 482.
    """
    work, costs = attention_work(operation, gpu), load_costs(__package__, gpu.compute_capability)
    return work.multiplying + costs["engine_start_keys"] * work.per_key


FEW_TURNED_APART = 64
"""Tokens up to which X has a turning launch of its own. Kind: definition, `prunecast.torch.ops`."""
LEAST_TURNED_APART = 1 << 20
"""Elements from which it has one. Kind: definition, `prunecast.torch.ops`."""
LEAST_ADDED = 6 << 20
"""Elements of C from which its product adds it to the residual. Kind: definition, `prunecast.torch.ops`."""
EPILOGUES = {"activation": "gelu_clk", "gated unit": "silu_clk"}
MOVING = {
    "input": ("layer_norm_s", "layer_norm_share"),
    "normalise": ("layer_norm_s", "layer_norm_share"),
    "rms norm": ("rms_norm_s", "rms_norm_share"),
    "activation": ("activation_s", "activation_share"),
    "gated unit": ("gated_s", "gated_share"),
    "rotary": ("rotary_s", "rotary_share"),
    "cache": ("cache_s", "turn_share"),
    "turn": ("turn_s", "turn_share"),
}
"""Kind -> entries for its beginning and its share of the copy rate."""
NORMS = ("normalise", "rms norm")
PATCH_TILE = 128
"""Pixels and channels of a tile of cuDNN's convolution of patches."""


class TorchTimes(NamedTuple):
    """Seconds by operation, and of turned tensors by what writes them."""

    seconds: dict[str, float]
    transposes: tuple[Transpose, ...]
    turning: dict[str, float]


class TorchTimer:
    """Times of launches on one GPU."""

    def __init__(self, gpu: GpuSpec) -> None:
        self._gpu = gpu
        self._costs = load_costs(__package__, gpu.compute_capability)

    def times(
        self,
        model: ModelGraph,
        product_seconds: Mapping[str, float],
        sparse: frozenset[str],
        ungated: frozenset[str] = frozenset(),
    ) -> TorchTimes:
        """All of a pass; `ungated` are those of `sparse` that have no gated unit as epilogue."""
        images = ImageForm(model, sparse, self._gpu)

        def seconds_of(o: Operation) -> float:
            if o.kind == "gemm":
                return product_seconds[o.name] + images.beside(o)
            return images.passing(o) if o.kind in PASSES else self.seconds(o)

        seconds = {o.name: seconds_of(o) for o in model}
        changed, turning = [], {}
        for name in sorted(sparse):
            for norm in _norms_of_sums(model, name):
                seconds[norm.name] = self.of_sum(norm)
                seconds[name] += self.adding(norm)
            source = next(iter(model.graph.predecessors(name)), None)
            if source is None:  # a matrix that the form does not know: a pooler
                continue
            maker = model[source]
            if images.in_planes(source) and model[name].convolution is not None:
                continue
            if _is_epilogue(model, maker, sparse, ungated):
                seconds[source] = self.epilogue(maker)
            elif model[name].n > 1:
                changed.append(Transpose(source, name, model[name].elements_in))
                turning[source] = self.turning(maker, model[name]) + images.laid(model[name])
        return TorchTimes(seconds, tuple(changed), turning)

    def seconds(self, operation: Operation) -> float:
        """Seconds of an operation that is no product, launch included."""
        gap_s = self._costs["gap_s"]
        if operation.kind == "attention":
            return 2.0 * gap_s + self._attention(operation)
        if operation.kind == "patches":
            return gap_s + self._patches(operation)
        return gap_s + self._moving(operation.kind, operation.elements_in + operation.elements_out)

    def epilogue(self, operation: Operation) -> float:
        """Seconds by which an activation in the epilogue makes a product longer."""
        clk = self._costs[EPILOGUES[operation.kind]]
        return clk * operation.elements_out / self._gpu.sm_count / self._gpu.clock_burst_hz[0]

    def of_sum(self, norm: Operation) -> float:
        """Seconds of a norm that reads the sum alone."""
        return self.seconds(replace(norm, elements_in=norm.elements_out))

    def adding(self, norm: Operation) -> float:
        """Seconds by which the sum that a norm reads makes a product longer."""
        return MemoryPass(one_way_bytes=norm.elements_out * ELEMENT_BYTES).seconds(self._gpu)

    def turning(self, maker: Operation, reader: Operation) -> float:
        """Seconds of turning X, which `maker` makes, for a sparse product."""
        x = reader.elements_in
        if reader.n > FEW_TURNED_APART and x < LEAST_TURNED_APART and maker.kind in NORMS:
            share = self._costs["turned_norm_share"]
            return MemoryPass(copied_bytes=2 * x * ELEMENT_BYTES, copy_share=share).seconds(self._gpu)
        return self._moving("turn", 2 * x)

    def _moving(self, kind: str, elements: int) -> float:
        """Return the seconds of an element-wise kernel, by the start and the rate measured of its kind."""
        start, share = MOVING[kind]
        return MemoryPass(
            copied_bytes=elements * ELEMENT_BYTES,
            start_s=self._costs[start],
            copy_share=self._costs[share],
        ).seconds(self._gpu)

    def _attention(self, o: Operation) -> float:
        """Tensor work of whole sequences; of few new tokens what the cache's bytes take, and partial sums."""
        costs, work = self._costs, attention_work(o, self._gpu, duty=MEAN_DUTY)
        tensor = (work.multiplying + costs["start_keys"] * work.per_key) / costs["attention_share"]
        if not o.elements_cached:
            return costs["attention_s"] + tensor
        return MemoryPass(
            one_way_bytes=o.elements_cached * ELEMENT_BYTES / costs["cache_read_share"],
            start_s=costs["split_keys_s"],
            overlapped_s=tensor,
        ).seconds(self._gpu)

    def _patches(self, o: Operation) -> float:
        """Waves of the convolution, and its input and output in the layouts that it wants."""
        tiles = -(-o.elements_out // PATCH_TILE**2)
        waves = -(-tiles // self._gpu.sm_count)
        return MemoryPass(
            copied_bytes=(o.elements_in + o.elements_out) * ELEMENT_BYTES,
            start_s=waves * self._costs["patch_wave_s"],
            copy_share=self._costs["patch_turn_share"],
        ).seconds(self._gpu)


def lost_epilogues(model: ModelGraph, gpu: GpuSpec, sparse: frozenset[str] = frozenset()) -> dict[str, float]:
    """Product -> seconds that a pass takes longer if it alone is dense, all others sparse, beside its own.

    An activation between two sparse products is the first one's epilogue, and else a kernel; behind a dense
    product X of the second one must be turned too. A large sum is a sparse product's epilogue. Images leave
    their planes for a dense convolution and come back. Empty for models that torch does not run.

    Parameters
    ----------
    sparse : products that may be, of which convolutions are looked at
    """
    lost: dict[str, float] = {}
    if model.runtime != "torch":
        return lost
    timer = TorchTimer(gpu)
    for o in (each for each in model if _may_be_epilogue(model, each)):
        apart = timer.seconds(o) - timer.epilogue(o)
        readers = [model[name] for name in model.graph.successors(o.name)]
        lost |= {reader.name: apart for reader in readers}
        turned = sum(timer.turning(o, reader) for reader in readers)
        lost |= dict.fromkeys(model.graph.predecessors(o.name), apart + turned)
    for name in model.products:
        for norm in _norms_of_sums(model, name):
            lost[name] = lost.get(name, 0.0) + timer.seconds(norm) - timer.of_sum(norm) - timer.adding(norm)
    return lost | _lost_planes(model, timer, sparse & model.products.keys())


def _lost_planes(model: ModelGraph, timer: TorchTimer, sparse: frozenset[str]) -> dict[str, float]:
    nothing = dict.fromkeys(model.products, 0.0)

    def around(those: frozenset[str]) -> float:
        found = timer.times(model, nothing, those)
        return sum(found.seconds.values()) + sum(found.turning.values())

    convolutions = [name for name in sparse if model[name].convolution is not None]
    return {name: around(sparse - {name}) - around(sparse) for name in convolutions}


def _norms_of_sums(model: ModelGraph, name: str) -> list[Operation]:
    """Norms that read one tensor, the sum, as the product before them has added to it."""
    readers = [model[reader] for reader in model.graph.successors(name)]
    return [each for each in readers if each.kind in NORMS and each.elements_out >= LEAST_ADDED]


def _is_epilogue(
    model: ModelGraph, maker: Operation, sparse: frozenset[str], ungated: frozenset[str]
) -> bool:
    """Whether an activation between sparse products is the first one's epilogue."""
    makers = frozenset(model.graph.predecessors(maker.name))
    alone = maker.kind == "gated unit" and not ungated.isdisjoint(makers)
    return _may_be_epilogue(model, maker) and sparse >= makers and not alone


def _may_be_epilogue(model: ModelGraph, maker: Operation) -> bool:
    """Gate and up of a file have tiles of their own, one below the other: the gated unit stays a kernel."""
    products = [model[name] for name in model.graph.predecessors(maker.name)]
    return maker.kind in EPILOGUES and len(products) == 1 and not products[0].members

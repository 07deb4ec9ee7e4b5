"""Runtimes: the rewrites that each one applies to a model graph, and the seconds of its launches.

`engine` fuses operations as inference engines do. By general rules, the remaining operations without weights
need the longer of their memory time and their arithmetic time. `torch` is `torch.compile` with the layers of
`prunecast.torch.sparsify`. Each kind of its kernels has a start time and a share of the GPU's copy rate,
which were fitted to traces (`costs/sm_90.toml`). Both runtimes call the fused attention kernels that they
would choose on the GPU.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from prunecast.choice import fastest_plan, kept_estimate
from prunecast.errors import check_choice
from prunecast.hardware import Costs, GpuSpec, MemoryPass, load_costs, sm_clock_hz
from prunecast.kernels import ConvGrid, ConvShape, implicit_plan, plan_dense
from prunecast.kernels.libraries.attention.call import attention_call
from prunecast.kernels.libraries.call import LibraryCall
from prunecast.kernels.libraries.collectives.call import collective
from prunecast.launch import USUAL, Conditions
from prunecast.patterns import dense_tile_map
from prunecast.workload.graph import convolutions, fusions, transposes
from prunecast.workload.graph.model_graph import COLLECTIVES, EXPERT_KINDS, ModelGraph, Moved, Operation

ELEMENT_BYTES = 2
"""Bytes per element: tensors of whole models have half precision."""
PRODUCT_SHARE = 0.6
"""Fraction of the time in which an unfused product of two activations, one head after the other, keeps the
tensor cores busy."""
PATCH_TILE = 128
"""Pixels and channels of a tile of cuDNN's convolution of patches."""

WHOLE_CHANNELS, WHOLE_FILTERS = 8, 32
"""cuDNN pads the channels and the filters of a convolution of images to multiples of these: 16 bytes, and the
rows of its smallest tile."""
STEM = (7, 2)
"""Height and stride of the filters for which cuDNN has a separate kernel, as in ResNets."""

DENSE_HEIGHT = 128
"""Rows of the tiles of dense convolutions in planes. Kind: choice, the height that most plans have."""

Rewrite = Callable[[ModelGraph], ModelGraph]


class Runtime(NamedTuple):
    """A runtime: its rewrites of model graphs, and functions for the times of its kernels."""

    meaning: str
    """Description of the runtime for messages, a clause that begins with `as`."""
    rewrites: tuple[Rewrite, ...]
    """Rewrites of every graph."""
    joins: tuple[Rewrite, ...]
    """Rewrites before `rewrites` that join products; omitted if each product must be one matrix of a file."""
    sparse_rewrites: tuple[Rewrite, ...]
    """Rewrites of a graph whose sparse products are marked (`is_sparse`)."""
    quantises: bool
    """True if a separate pass quantises X of products in fp8."""
    seconds: Callable[[Operation, GpuSpec, Conditions], float]
    """(operation that is no product, GPU, conditions of its launch) -> seconds of all its copies that run."""
    product_seconds: Callable[[Operation, GpuSpec, float], float]
    """(product, GPU, seconds of its plan) -> seconds of the kernel that the runtime calls."""


def rewritten(model: ModelGraph, name: str, *, by_matrix: bool = False) -> ModelGraph:
    """Apply the rewrites of the runtime `name` to a graph; with `by_matrix` no products are joined.

    Raises
    ------
    BadInput : an unknown runtime
    """
    runtime = RUNTIMES[check_choice("runtime", name, RUNTIMES)]
    for rewrite in runtime.rewrites if by_matrix else (*runtime.joins, *runtime.rewrites):
        model = rewrite(model)
    return replace(model, runtime=name)


@lru_cache(maxsize=16)
def with_sparse(
    model: ModelGraph,
    sparse: frozenset[str],
    unfused: frozenset[str] = frozenset(),
    *,
    dtype: str = "fp16",
) -> ModelGraph:
    """Return the graph of the launches of a pass in which the products `sparse` are sparse.

    The result is cached, since a search asks for the times of the same layers with several sparsities.

    Parameters
    ----------
    unfused : sparse products whose kernel cannot run gated units and residual adds in its epilogue
    dtype : with `fp8`, passes that quantise X are added if the runtime needs them
    """
    runtime = RUNTIMES[model.runtime]
    is_quantised = dtype == "fp8" and runtime.quantises
    if is_quantised:
        model = transposes.mark_fp8(model)
    if sparse:
        model = fusions.mark_sparse(model, sparse, unfused)
        for rewrite in runtime.sparse_rewrites:
            model = rewrite(model)
    return transposes.quantise_inputs(model) if is_quantised else model


def engine_seconds(o: Operation, gpu: GpuSpec, conditions: Conditions = USUAL) -> float:
    """Return the seconds of an operation in an inference engine, summed over all copies that run.

    Each copy of the operation is one launch, which needs the longer of memory time and arithmetic time. Fused
    attention and collectives are calls of the libraries that an engine uses on the GPU.
    """
    if o.kind == "input":
        return 0.0
    if is_call(o):
        return o.runs * call_of(o, gpu, conditions, "engine").seconds
    multiplying_s = 0.0
    if o.flops:
        clock_hz = sm_clock_hz(
            gpu, tensor_duty=PRODUCT_SHARE, l2_bytes_per_clk_per_sm=0.0, state=conditions.state
        )
        flops_per_s = PRODUCT_SHARE * 2.0 * gpu.tensor_fp16_fma_per_clk_per_sm * gpu.sm_count * clock_hz
        multiplying_s = o.flops / flops_per_s
    work = MemoryPass(
        copied_bytes=(o.elements_in + o.elements_out) * ELEMENT_BYTES,
        one_way_bytes=o.elements_cached * ELEMENT_BYTES,
        start_s=conditions.launch_s(gpu),
        overlapped_s=multiplying_s,
    )
    return o.runs * work.seconds(gpu)


def is_call(o: Operation) -> bool:
    """Return True if an operation is a library call: fused attention or a collective."""
    return o.attention is not None or o.kind in COLLECTIVES


def call_of(o: Operation, gpu: GpuSpec, conditions: Conditions, runtime: str) -> LibraryCall:
    """Return the library call of one copy of fused attention or of a collective.

    Keys and values of earlier tokens are in DRAM: the caches of all layers exceed L2.
    """
    if o.attention is None:
        return collective(o.kind, float(ELEMENT_BYTES * o.elements_out), o.gpus, gpu)
    state, launch = conditions.state, conditions.launch
    return attention_call(o.attention, gpu, runtime=runtime, state=state, launch=launch)


def torch_costs(gpu: GpuSpec) -> Costs:
    """Return the fitted costs of the kernels that torch launches between products."""
    return load_costs(__package__, gpu.compute_capability)


class Moving(NamedTuple):
    """Names of two costs of a memory-bound kernel: its start time, and its share of the GPU's copy rate."""

    start: str
    share: str


POINTWISE = Moving("pointwise_s", "pointwise_share")
"""Bias, ReLU, residual sum, pool and copy. Tensors that fit in L2 are moved at DRAM's rate too."""
TORCH_MOVING: Mapping[str, Moving] = {
    "input": Moving("layer_norm_s", "layer_norm_share"),
    "normalise": Moving("layer_norm_s", "layer_norm_share"),
    "rms norm": Moving("rms_norm_s", "rms_norm_share"),
    "activation": Moving("activation_s", "activation_share"),
    "gated unit": Moving("gated_s", "gated_share"),
    "head norm": Moving("layer_norm_s", "head_norm_share"),
    "rotary": Moving("rotary_s", "rotary_share"),
    "cache": Moving("cache_s", "transpose_share"),
    "transpose": Moving("transpose_s", "transpose_share"),
    "quantise": Moving("quantise_s", "quantise_share"),
    "rotary in place": Moving("rotate_s", "rotate_share"),
    "expert sort": Moving("expert_sort_s", "expert_share"),
    "expert unit": Moving("expert_pass_s", "expert_share"),
    "expert sum": Moving("expert_pass_s", "expert_share"),
    "elementwise": POINTWISE,
    "relu": POINTWISE,
    "pool": POINTWISE,
    "unknown": POINTWISE,
}
STRIDED_NORM = Moving("layer_norm_s", "strided_norm_share")
"""Names of the costs of a norm that reads a feature-major residual stream."""
LOOPED_FEATURES = 1024
"""Features above which a norm loops over them. Kind: definition, persistent reductions of torch 2.11."""
LOOP_FEATURES = 2048
"""Features of a step of this loop, some of which may be empty. Kind: as compiled by torch 2.11."""
OVERLAPPED = ("transpose", "quantise", "rotary in place", *EXPERT_KINDS)
"""Kinds whose launch overlaps with the one before, so that there is no gap between them."""
EPILOGUE_CLK = {"gelu epilogue": "gelu_clk", "silu epilogue": "silu_clk"}
"""Kind of epilogue -> name of its cost: SM cycles by which each element of C prolongs the product."""


def torch_seconds(o: Operation, gpu: GpuSpec, conditions: Conditions = USUAL) -> float:
    """Return the seconds of an operation in torch, summed over all copies that run.

    The times were fitted to traces and include the launches in a CUDA graph. Kinds without fitted costs need
    the time of a copy of the elements that they read and write.
    """
    return o.runs * _torch_launch_seconds(o, gpu, conditions)


def _torch_launch_seconds(o: Operation, gpu: GpuSpec, conditions: Conditions) -> float:
    """Return the seconds of one copy of an operation in torch."""
    costs = torch_costs(gpu)
    moved = torch_elements(o, costs)
    if o.attention is not None:
        return call_of(o, gpu, conditions, "torch").seconds
    if o.kind == "patches":
        return costs["gap_s"] + _torch_patches(o, gpu, costs)
    if o.kind == "convolution":
        return costs["gap_s"] + _torch_convolution(o, gpu, costs)
    if o.kind == "depthwise":
        multiplying_s = 0.5 * o.flops * costs["depthwise_clk"] / gpu.sm_count / gpu.clock_burst_hz[0]
        start_s = costs["depthwise_s"]
        return _copy_seconds(moved, gpu, start_s=start_s, overlapped_s=multiplying_s, copy_share=1.0)
    if o.kind == "relu epilogue":
        return 0.0
    if o.kind in EPILOGUE_CLK:
        return costs[EPILOGUE_CLK[o.kind]] * o.elements_out / gpu.sm_count / gpu.clock_burst_hz[0]
    if o.kind == "transpose epilogue":
        return _copy_seconds(moved, gpu, copy_share=costs["norm_transpose_share"])
    if o.kind not in TORCH_MOVING:
        return _copy_seconds(moved, gpu, start_s=gpu.graph_launch_s)
    is_strided = o.kind == "normalise" and o.layout == "features"
    if o.kind == "normalise" and o.features > LOOPED_FEATURES and not is_strided:
        return costs["gap_s"] + _looped_norm_seconds(o, costs, gpu)
    entry = STRIDED_NORM if is_strided else TORCH_MOVING[o.kind]
    kernel_s = _copy_seconds(moved, gpu, start_s=costs[entry.start], copy_share=costs[entry.share])
    return kernel_s + (0.0 if o.kind in OVERLAPPED else costs["gap_s"])


def _copy_seconds(elements: float, gpu: GpuSpec, **others: float) -> float:
    """Return the seconds of a kernel that moves `elements` read and written; `others` as in `MemoryPass`."""
    return MemoryPass(copied_bytes=elements * ELEMENT_BYTES, **others).seconds(gpu)


def _looped_norm_seconds(o: Operation, costs: Costs, gpu: GpuSpec) -> float:
    """Return the seconds of a LayerNorm whose features do not fit in one block at once.

    t = start + padded elements * clk / (SMs * clock) + (elements moved - elements of one tensor) / rate

    A first loop computes mean and variance and is bound by the arithmetic of Welford's updates, which need
    `clk` cycles of an SM per element. A second loop reads and writes at `rate`.
    """
    each = o.elements_out // o.tensors_out
    padded = each // o.features * -(-o.features // LOOP_FEATURES) * LOOP_FEATURES
    updating_s = padded * costs["looped_norm_clk"] / gpu.sm_count / gpu.clock_burst_hz[0]
    start_s, share = costs["layer_norm_s"] + updating_s, costs["looped_norm_share"]
    return _copy_seconds(torch_elements(o, costs) - each, gpu, start_s=start_s, copy_share=share)


def cudnn_seconds(o: Operation, gpu: GpuSpec, seconds: float) -> float:
    """Return the seconds of a product in torch, from the predicted `seconds` of its plan.

    The two differ for dense convolutions, which are planned as products of cuBLAS with pixel addresses. In
    torch most dense convolutions are kernels of cuDNN. Those with 1x1 filters stay products of cuBLAS, and
    those in planes run as dense tiles of this project's kernel.
    """
    if o.convolution is None or o.is_sparse:
        return seconds
    if o.layout == "features":
        return seconds * _dense_tiles_share(o.m, o.convolution, gpu)
    if o.convolution.taps == 1:
        return seconds
    costs = torch_costs(gpu)
    if o.convolution.channels % WHOLE_CHANNELS:
        return _image_convolution_seconds(o.m, o.convolution, gpu, costs)
    return costs["conv_s"] + costs["conv_share"] * seconds


def _image_convolution_seconds(m: int, conv: ConvShape, gpu: GpuSpec, costs: Costs) -> float:
    """Return the seconds of cuDNN's convolution of images, whose few channels are padded with zeros.

    t = multiply-adds * clk / (SMs * clock), where clk is the fitted cycles of an SM per multiply-add.
    """
    channels = -(-conv.channels // WHOLE_CHANNELS) * WHOLE_CHANNELS
    filters = -(-m // WHOLE_FILTERS) * WHOLE_FILTERS
    clk = costs["stem_clk" if (conv.kernel_h, conv.stride) == STEM else "image_clk"]
    return filters * channels * conv.taps * conv.n * clk / gpu.sm_count / gpu.clock_burst_hz[0]


@lru_cache(maxsize=1024)
def _dense_tiles_share(m: int, conv: ConvShape, gpu: GpuSpec) -> float:
    """Return the time of a convolution as dense tiles of this project's kernel, divided by that of cuBLAS."""
    grid = ConvGrid.of_network(conv)
    tiles = dense_tile_map(m, conv.k, min(m, DENSE_HEIGHT))
    ours = fastest_plan("stspmm", tiles, grid.n, "fp16", gpu, source=grid)
    return kept_estimate(ours, gpu).seconds / _implicit_seconds(m, grid.conv, gpu)


@lru_cache(maxsize=1024)
def _implicit_seconds(m: int, conv: ConvShape, gpu: GpuSpec) -> float:
    """Return the seconds of a convolution as a product of cuBLAS that computes the addresses of pixels."""
    library = implicit_plan(plan_dense(m, conv.k, conv.n, "fp16", gpu), conv)
    return kept_estimate(library, gpu).seconds


def torch_elements(o: Operation, costs: Costs) -> int:
    """Return the number of elements that the kernel of an operation reads and writes.

    For a norm that also writes the residual sum, it is the size of a tensor times a fitted mean number of
    tensors, which holds for one branch and one norm. Every further branch and norm is one more tensor.
    """
    if o.kind in fusions.NORMS and o.tensors_in > 1 and o.tensors_out > 1:
        more = o.tensors_in + o.tensors_out - 4
        return round((costs["summed_tensors"] + more) * (o.elements_out // o.tensors_out))
    return o.elements_in + o.elements_out


def _torch_patches(o: Operation, gpu: GpuSpec, costs: Costs) -> float:
    """Return the seconds of the convolution of patches: waves of its tiles, and copies between layouts."""
    tiles = -(-o.elements_out // PATCH_TILE**2)
    waves = -(-tiles // gpu.sm_count)
    start_s, share = waves * costs["patch_wave_s"], costs["patch_copy_share"]
    return _copy_seconds(o.elements_in + o.elements_out, gpu, start_s=start_s, copy_share=share)


def _torch_convolution(o: Operation, gpu: GpuSpec, costs: Costs) -> float:
    """Return the seconds of cuDNN's convolution with overlapping filters at the beginning of a transformer.

    Kernels before and after it copy its input, filters and output between layouts, and add the bias.
    """
    assert o.convolution is not None
    copied = 2 * (o.elements_in + o.m * o.k + 2 * o.elements_out)
    around_s = _copy_seconds(copied, gpu, copy_share=costs["sound_copy_share"])
    product_s = _implicit_seconds(o.m, o.convolution, gpu)
    return costs["conv_s"] + costs["conv_share"] * product_s + around_s


def moved_seconds(moved: Moved, gpu: GpuSpec) -> float:
    """Return the seconds of the extra elements that an operation moves in torch."""
    costs = torch_costs(gpu)
    return MemoryPass(
        copied_bytes=moved.copied * ELEMENT_BYTES,
        l2_bytes=moved.in_l2 * ELEMENT_BYTES,
        one_way_bytes=moved.one_way * ELEMENT_BYTES,
        start_s=costs["gap_s"] + costs[POINTWISE.start] if moved.is_launch else 0.0,
        copy_share=costs[POINTWISE.share],
    ).seconds(gpu)


RUNTIMES: Mapping[str, Runtime] = {
    "engine": Runtime(
        meaning="as an inference engine with fused kernels could run it",
        rewrites=(
            fusions.fold_first_norm,
            fusions.fold_rotary,
            fusions.fold_activations,
            fusions.generalise_kinds,
        ),
        joins=(),
        sparse_rewrites=(transposes.transpose_at_the_cut,),
        quantises=False,
        seconds=engine_seconds,
        product_seconds=lambda o, gpu, seconds: seconds,
    ),
    "torch": Runtime(
        meaning="as torch.compile and prunecast.torch run it (--runtime engine: with fused kernels)",
        rewrites=(
            convolutions.convolve_patches,
            convolutions.separate_bias,
            convolutions.keep_feature_major,
            fusions.look_for_infinities,
            convolutions.concatenate_upsampled,
        ),
        joins=(fusions.join_qkv, fusions.join_gate_and_up),
        sparse_rewrites=(
            convolutions.make_token_major,
            fusions.fuse_activations,
            fusions.add_residuals,
            fusions.rotate_in_place,
            convolutions.lay_images,
            transposes.transpose_inputs,
        ),
        quantises=True,
        seconds=torch_seconds,
        product_seconds=cudnn_seconds,
    ),
}
"""The runtimes of models by name."""

"""What the operators do on a GPU, from the call to y, with an emulated driver and machine underneath."""

import contextlib
import ctypes
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.kernels.device import launch as kernel_launch
from prunecast.kernels.device import operator as device_operator
from prunecast.kernels.device import pass_launch as device_passes
from prunecast.kernels.device.attention import attention as device_attention
from prunecast.kernels.device.build import SOURCES as DEVICE
from prunecast.kernels.device.compile_inputs import CompileInputs
from prunecast.kernels.device.experts import experts as device_experts
from prunecast.kernels.device.transpose.transpose import GATHER_ARGS, NORM_ARGS, TRANSPOSE_ARGS
from prunecast.kernels.small_n.cuda.records import SMALL_ARGS
from prunecast.kernels.tile.cuda import operator as tile_operator
from prunecast.kernels.tile.cuda.mma.records import MMA_ARGS
from prunecast.kernels.tile.cuda.operator import SOURCES
from prunecast.kernels.tile.cuda.work_image import TILE_ARGS
from prunecast.kernels.two_of_four.cuda.operator import SPARSE_ARGS
from prunecast.patterns import NestedMap, parse_pattern
from tests.kernels.cuda.on_cpu.on_cpu import UNAVAILABLE, Grid, build_on_cpu, run_on_cpu

torch = pytest.importorskip("torch")

from prunecast.torch import masked_attention, ops  # noqa: E402
from prunecast.torch.cuda import direct, launches, transpose  # noqa: E402
from prunecast.torch.cuda import experts as expert_launches  # noqa: E402
from prunecast.torch.cuda.experts import run_experts  # noqa: E402
from prunecast.torch.epilogue import (  # noqa: E402
    ACTIVATIONS,
    Epilogue,
    LinearCall,
    activated,
    interleaved,
)
from prunecast.torch.experts import ExpertMatrix, SparseExperts  # noqa: E402
from prunecast.torch.layer_plans import ExpertTokens, expert_layouts, layouts_for  # noqa: E402
from prunecast.torch.layer_table import dtype_name  # noqa: E402
from prunecast.torch.packed import PackedProduct, interleaved_tiles  # noqa: E402

pytestmark = pytest.mark.skipif(UNAVAILABLE, reason="needs Linux and g++")

GPU = load_gpu("h200-sxm")
ARGUMENTS = {
    "tile_sm90": TILE_ARGS,
    "small_n": SMALL_ARGS,
    "transpose_rows": TRANSPOSE_ARGS,
    "sparse_sm90": SPARSE_ARGS,
    "tile_mma": MMA_ARGS,
    "tile_ffma": MMA_ARGS,
    "route_tokens": device_experts.ROUTE_ARGS,
    "list_items": device_experts.LIST_ARGS,
    "gate_rows": device_experts.GATE_ARGS,
    "sum_experts": device_experts.SUM_ARGS,
    "attend": device_attention.ATTENTION_ARGS,
}
TENSOR_MAP = np.dtype(("u8", 16))
UINT16, FLOAT16, BFLOAT16 = 1, 6, 9
"""CU_TENSOR_MAP_DATA_TYPE of the CUDA driver API."""


class Loaded(NamedTuple):
    """A kernel, as far as the emulated driver knows it."""

    entry: str
    source: Path
    defines: dict[str, int]
    cluster: int
    includes: tuple[Path, ...] = ()


class EmulatedDriver:
    """Memory of the host, and launches that run at once."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.arrays, self.loaded = folder, {}, []
        self.tensors: list[Any] = []
        self.launched: list[str] = []
        self.kinds: list[int] = []
        self.capability = 90

    def cuMemAlloc_v2(self, pointer, size):  # noqa: N802
        whole = np.zeros(size.value + 128, np.uint8)
        found = whole[-whole.ctypes.data % 128 :][: size.value]
        self.arrays[found.ctypes.data] = found
        pointer._obj.value = found.ctypes.data
        return 0

    def cuMemcpyHtoD_v2(self, to, given, size):  # noqa: N802
        ctypes.memmove(to.value, given.value, size.value)
        return 0

    def cuMemFree_v2(self, pointer):  # noqa: N802
        self.arrays.pop(pointer.value, None)
        return 0

    def cuDeviceGetAttribute(self, found, *_):  # noqa: N802
        """As many SMs as any GPU has."""
        found._obj.value = 200
        return 0

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(self, found, *_):  # noqa: N802
        """All blocks are resident."""
        found._obj.value = 32
        return 0

    def cuTensorMapEncodeTiled(  # noqa: N802
        self, to, kind, rank, pointer, sizes, strides, box, *rest
    ):
        """As `machine_memory.cpp` reads it."""
        facts = (pointer.value, sizes[0], sizes[1], strides[0], box[0], box[1], kind == BFLOAT16)
        ctypes.memmove(to.value, (ctypes.c_uint64 * 7)(*facts), 56)
        self.kinds.append(kind)
        return 0

    def cuLaunchKernelEx(self, config, function, addresses, extra):  # noqa: N802
        kernel, given = self.loaded[function.value - 1], config._obj
        arch = 900 if self.capability >= 80 else 750
        built = build_on_cpu(
            kernel.source,
            kernel.entry,
            kernel.defines,
            self.folder,
            includes=[SOURCES, *kernel.includes],
            arch=arch,
        )
        changed = {"NORMED": NORM_ARGS, "GATHERED": GATHER_ARGS}
        own = next((changed[name] for name in changed if name in kernel.defines), ARGUMENTS[kernel.entry])
        kinds = [own, *([TENSOR_MAP] if kernel.entry == "tile_sm90" else [])]
        arguments = [
            np.frombuffer(ctypes.string_at(address, kind.itemsize), np.uint8).copy()
            for address, kind in zip(addresses, kinds, strict=True)
        ]
        grid = Grid(
            given.grid[0],
            given.block[0],
            given.shared_bytes,
            cluster=kernel.cluster,
            resident=0 if "sm90" in kernel.entry or "tile" in kernel.entry else 2,
        )
        memory = [tensor.untyped_storage() for tensor in self.tensors]
        arrays = [
            np.ctypeslib.as_array((ctypes.c_uint8 * m.nbytes()).from_address(m.data_ptr())) for m in memory
        ]
        run_on_cpu(built, grid, arguments, [*self.arrays.values(), *arrays])
        self.launched.append(kernel.entry)
        return 0


def _new_empty(shape, strides, dtype):
    elements = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    return torch.empty((), dtype=dtype).new_empty(elements).as_strided(shape, strides)


@pytest.fixture
def emulated(monkeypatch, tmp_path_factory):
    """The driver under the launches, which take tensors of the host for those of a device."""
    made = EmulatedDriver(tmp_path_factory.getbasetemp() / "emulated")
    made.monkeypatch = monkeypatch
    made.folder.mkdir(exist_ok=True)
    for module in (kernel_launch, tile_operator):
        monkeypatch.setattr(module, "driver", lambda: made)
    monkeypatch.setattr(launches, "_PREPARED", {})
    monkeypatch.setattr(direct, "_empty", _new_empty)
    monkeypatch.setattr(launches, "check_gpu", lambda *_: None)
    monkeypatch.setattr(launches, "is_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "device", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda _: 0, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: None, raising=False)

    class Built(NamedTuple):
        cubin: Loaded

    def load(cubin, entry, *_):
        made.loaded.append(cubin._replace(entry=entry))
        return len(made.loaded)

    for module in (device_operator, device_passes):
        monkeypatch.setattr(module, "load_function", load)
        monkeypatch.setattr(module, "capability_of", lambda _: made.capability)
        monkeypatch.setattr(module, "arch_of", lambda _: "")

    def built(form, arch=None):
        cluster = form.defines.get("CLUSTER", 1)
        return Built(Loaded(form.entry, form.source, dict(form.defines), cluster, tuple(form.includes)))

    def built_pass(launch, arch):
        return Built(Loaded(launch.entry, DEVICE / launch.source, dict(launch.defines), 1))

    monkeypatch.setattr(CompileInputs, "build", built)
    monkeypatch.setattr(device_passes.PassLaunch, "build", built_pass)
    return made


def on_gpu(monkeypatch):
    """Tensors say that they are on the device."""
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    monkeypatch.setattr(torch.Tensor, "get_device", lambda _: None)


def add_on_gpu(emulated, *given):
    """Call `linear_add_` with tensors that say that they are on the device."""
    with emulated.monkeypatch.context() as patch:
        on_gpu(patch)
        ops._add_linear(*given)


def product(pattern, dtype, *, few_tokens, m=512, k=384, gpu=GPU):
    torch.manual_seed(0)
    weight, found = torch.randn(m, k).to(dtype), parse_pattern(pattern)
    kept = found.map(found.prune({"w": weight.abs().float().numpy()}, 0.6)["w"])
    weight = weight * torch.from_numpy(kept.mask())
    bias, two_of_four = torch.randn(m).to(dtype), isinstance(kept, NestedMap)
    kept = kept.tiles if two_of_four else kept
    layouts = layouts_for(kept, dtype_name(dtype), gpu, 512, few_tokens=few_tokens, two_of_four=two_of_four)
    return PackedProduct(weight, kept, bias, gpu=gpu, max_tokens=512, layouts=layouts), weight, bias


def known(emulated, made, *tensors):
    """The emulated driver also knows tensors that are made from now on."""
    emulated.tensors = [*tensors, made.fp32_bias, *made.images]
    record_new_tensors(emulated)


def record_new_tensors(emulated):
    """Tell the emulated driver of tensors that torch makes, filled with NaN or a large number."""
    real, whole = torch.Tensor.new_empty, emulated.tensors

    def told(self, *sizes, **options):
        made = real(self, *sizes, **options)
        whole.append(made.fill_(float("nan") if made.is_floating_point() else 1 << 30))
        return made

    def padded(tensor, sizes):
        whole.append(pad(tensor, sizes))
        return whole[-1]

    pad = torch.nn.functional.pad
    emulated.monkeypatch.setattr(torch.Tensor, "new_empty", told)
    emulated.monkeypatch.setattr(torch.nn.functional, "pad", padded)


def call(emulated, made, x):
    """y as the operators for CUDA make it, in memory that the emulated driver knows."""
    tokens = len(x)
    padded = 1 if tokens == 1 else -(-tokens // 8) * 8
    x_t = torch.empty(made.features, padded, dtype=x.dtype)
    turned = made.epilogue.features_first
    y = torch.full((made.rows, padded) if turned else (tokens, made.rows), float("nan"), dtype=x.dtype)
    emulated.tensors[:] = [x, x_t, y, made.fp32_bias, *made.images]
    x_t[:, :tokens], x_t[:, tokens:] = x.t(), 0
    given = (x_t, made.images, made.tiles, made.fp32_bias, tokens, made.rows)
    found = launches.launch_of(LinearCall(*given, *made.epilogue, made.gpu.name, made.plan))
    found(x_t, made.images, made.fp32_bias, y)
    return y[:, :tokens].t() if turned else y


@pytest.mark.parametrize(
    ("pattern", "tokens", "few_tokens", "dtype"),
    [
        ("tile-wise:128", 200, False, torch.float16),
        ("tile-wise:128", 45, False, torch.bfloat16),
        ("tile-wise:256", 131, False, torch.float16),
        ("tile-wise:64", 1, True, torch.float16),
        ("tile-wise:64", 13, True, torch.bfloat16),
        ("tile-wise:64", 64, True, torch.float16),
        ("tvw:128", 200, False, torch.float16),
        ("tvw:256", 45, True, torch.bfloat16),
    ],
)
def test_a_call_gives_y(pattern, tokens, few_tokens, dtype, emulated):
    made, weight, bias = product(pattern, dtype, few_tokens=few_tokens)
    for seed in (1, 2):  # the second call finds the launch prepared
        torch.manual_seed(seed)
        x = torch.randn(tokens, made.features).to(dtype)
        wanted = torch.nn.functional.linear(x.float(), weight.float(), bias.float())
        y = call(emulated, made, x)
        assert torch.allclose(y.float(), wanted, rtol=1e-2, atol=2e-2 if dtype == torch.float16 else 0.3)
    assert len(emulated.launched) == 2


OTHERS = [
    ("a100-sxm4-80gb", "tile-wise:64", 45, torch.float16, "plain"),
    ("a100-sxm4-80gb", "tile-wise:64", 13, torch.float16, "features first"),
    ("a100-sxm4-80gb", "tvw:128", 45, torch.float16, "residual"),
    ("rtx-4090", "tile-wise:128", 200, torch.bfloat16, "plain"),
    ("t4", "tile-wise:64", 45, torch.float16, "residual"),
    ("t4", "tile-wise:64", 1, torch.float16, "plain"),
    ("a100-sxm4-80gb", "tile-wise:64", 13, torch.float32, "plain"),
    ("t4", "tile-wise:64", 200, torch.float32, "features first"),
    ("h200-sxm", "tile-wise:64", 45, torch.float32, "residual"),
]


@pytest.mark.parametrize(("gpu", "pattern", "tokens", "dtype", "end"), OTHERS)
def test_other_gpus_run_the_kernels_without_wgmma(gpu, pattern, tokens, dtype, end, emulated):
    """They write C features first, which is transposed or added to y afterwards."""
    entry = "tile_ffma" if dtype == torch.float32 else "tile_mma"
    spec = load_gpu(gpu)
    emulated.capability = spec.compute_capability
    made, weight, bias = product(pattern, dtype, few_tokens=False, m=256, k=160, gpu=spec)
    made.epilogue = Epilogue("gelu", features_first=end == "features first")
    x = torch.randn(tokens, made.features).to(dtype)
    wanted = activated(torch.nn.functional.linear(x.float(), weight.float(), bias.float()), made.epilogue)
    if end == "residual":
        made.epilogue = Epilogue()
        y = torch.randn(tokens, made.rows).to(dtype)
        wanted = y.float() + torch.nn.functional.linear(x.float(), weight.float(), bias.float())
        x_t = torch.nn.functional.pad(x.t(), (0, -tokens % 8)).contiguous()
        known(emulated, made, x_t, y)
        layer = (made.images, made.tiles, made.fp32_bias, tokens, made.rows, spec.name, made.plan)
        add_on_gpu(emulated, y, x_t, *layer)
    else:
        known(emulated, made)
        y = call(emulated, made, x)
    error = (y.float() - wanted).abs().max() / wanted.abs().max()
    assert error < {torch.float16: 2e-3, torch.bfloat16: 1.2e-2, torch.float32: 1e-6}[dtype]
    assert emulated.launched[0] == entry
    assert made._directly(x) is None, "eager calls go through the operators"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("pattern", "tokens", "few_tokens"),
    [
        ("tile-wise:128", 45, False),
        ("tile-wise:256", 131, False),
        ("tile-wise:64", 13, True),
        ("tvw:128", 45, False),
    ],
)
def test_a_residual_is_added_by_the_launch_and_each_sum_is_rounded_once(
    pattern, tokens, few_tokens, dtype, emulated
):
    """In the place of a residual as models have it, (batch, tokens, rows)."""
    made, _, _ = product(pattern, dtype, few_tokens=few_tokens)
    x, residual = torch.randn(tokens, made.features).to(dtype), torch.randn(tokens, made.rows).to(dtype)
    alone = call(emulated, made, x)
    in_place = residual.clone().unsqueeze(0)
    x_t = torch.nn.functional.pad(x.t(), (0, -tokens % 8)).contiguous()
    emulated.tensors = [x_t, in_place, made.fp32_bias, *made.images]
    layer = (made.images, made.tiles, made.fp32_bias, tokens, made.rows, GPU.name, made.plan)
    add_on_gpu(emulated, in_place, x_t, *layer)
    assert torch.equal(in_place[0], alone + residual)
    assert len(emulated.launched) == 2
    adds = {torch.float16: FLOAT16, torch.bfloat16: BFLOAT16}[dtype]
    has_maps = pattern.startswith("tile-wise") and not few_tokens
    assert emulated.kinds == ([UINT16, adds] if has_maps else [])


def gated_product(dtype, *, few_tokens):
    """Gate and up with the same tiles, and their weights, interleaved."""
    half, weight, _ = product("tile-wise:64", dtype, few_tokens=few_tokens)
    up = torch.where(weight != 0, torch.randn(weight.shape).to(dtype), 0)
    both, tiles = interleaved(weight, up), interleaved_tiles(half.tile_map, "both")
    layouts = layouts_for(
        tiles, "fp16" if dtype == torch.float16 else "bf16", GPU, 512, few_tokens=few_tokens
    )
    epilogue = Epilogue("silu", glu=True, features_first=True)
    bias = torch.randn(len(both)).to(dtype)
    options = {"gpu": GPU, "max_tokens": 512, "layouts": layouts}
    return PackedProduct(both, tiles, bias, epilogue=epilogue, **options), both, bias


@pytest.mark.parametrize("glu", [False, True])
@pytest.mark.parametrize(
    ("tokens", "few_tokens", "dtype"),
    [
        (200, False, torch.float16),
        (45, False, torch.bfloat16),
        (1, True, torch.bfloat16),
        (1, False, torch.float16),  # columns that the kernel needs are no columns of y
        (13, True, torch.float16),
        (64, True, torch.float16),
    ],
)
def test_epilogues_write_features_first(glu, tokens, few_tokens, dtype, emulated):
    record_new_tensors(emulated)  # C of 16 columns, of which y has one
    if glu:
        made, weight, bias = gated_product(dtype, few_tokens=few_tokens)
    else:
        made, weight, bias = product("tile-wise:128", dtype, few_tokens=few_tokens)
        made.epilogue = Epilogue("gelu-tanh", features_first=True)
    x = torch.randn(tokens, made.features).to(dtype)
    sums = torch.nn.functional.linear(x.float(), weight.float(), bias.float())
    wanted = activated(sums, made.epilogue)
    error = (call(emulated, made, x).float() - wanted).abs().max() / wanted.abs().max()
    assert error < (2e-3 if dtype == torch.float16 else 1.2e-2)


@pytest.mark.parametrize("tokens", [45, 200])
def test_2_of_4_writes_features_first(tokens, emulated):
    made, weight, bias = product("tvw:128", torch.float16, few_tokens=False)
    made.epilogue = Epilogue("gelu-tanh", features_first=True)
    x = torch.randn(tokens, made.features).half()
    wanted = activated(torch.nn.functional.linear(x.float(), weight.float(), bias.float()), made.epilogue)
    error = (call(emulated, made, x).float() - wanted).abs().max() / wanted.abs().max()
    assert error < 2e-3


def test_tiles_and_2_of_4_in_the_same_tiles_have_launches_of_their_own(emulated):
    halved, weight, bias = product("tvw:128", torch.float16, few_tokens=False)
    layouts = layouts_for(halved.tile_map, "fp16", GPU, 512, few_tokens=False)
    whole = PackedProduct(weight, halved.tile_map, bias, gpu=GPU, max_tokens=512, layouts=layouts)
    assert whole.plan == halved.plan
    x = torch.randn(45, halved.features).half()
    assert torch.allclose(call(emulated, whole, x), call(emulated, halved, x), rtol=1e-2, atol=2e-2)
    assert set(emulated.launched) == {"tile_sm90", "sparse_sm90"}


@pytest.mark.parametrize(
    ("shape", "few_tokens"), [((2, 70), False), ((1, 1), True), ((1,), False), ((13,), True)]
)
def test_an_eager_call_is_two_launches_and_no_operator(shape, few_tokens, emulated, monkeypatch):
    made, weight, bias = product("tile-wise:128", torch.float16, few_tokens=few_tokens)
    real, new = torch.Tensor.new_empty, []

    def told(self, *sizes, **options):
        new.append(real(self, *sizes, **options))
        emulated.tensors = [x, *new, made.fp32_bias, *made.images]
        return new[-1]

    monkeypatch.setattr(torch.Tensor, "new_empty", told)
    on_gpu(monkeypatch)
    for seed in (1, 2):
        torch.manual_seed(seed)
        x = torch.randn(*shape, made.features).half()
        emulated.tensors = [x, *new, made.fp32_bias, *made.images]
        emulated.launched.clear()
        y = made._directly(x)
        wanted = torch.nn.functional.linear(x.float(), weight.float(), bias.float())
        assert y.shape == wanted.shape
        assert y.is_contiguous()
        assert torch.allclose(y.float(), wanted, rtol=1e-2, atol=2e-2)
        assert len(emulated.launched) == (1 if few_tokens and shape == (1, 1) else 2)


class Seen(torch.Tensor):
    """A kind of tensor of the user's."""


def in_grad(x, call):
    found = []
    torch.func.grad(lambda y: found.append(call(y)) or y.sum())(x)
    return found[0]


def under_a_mode(x, call):
    class Mode(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    with Mode():
        return call(x)


NOT_DIRECT = {
    "x has a gradient": lambda x, call: call(x.clone().requires_grad_()),
    "another kind of tensor": lambda x, call: call(x.as_subclass(Seen)),
    "somebody differentiates": in_grad,
    "somebody listens": under_a_mode,
    "x begins between words of 16 bytes": lambda x, call: call(
        torch.zeros(1 + x.numel()).half()[1:].view(x.shape)
    ),
    "x lies otherwise": lambda x, call: call(torch.zeros(*x.shape[:-1], 2 * x.shape[-1]).half()[..., ::2]),
    "nothing was called so yet": lambda x, call: call(x[:, :8].clone()),
}


@pytest.mark.parametrize("why", NOT_DIRECT)
def test_a_call_that_somebody_has_to_see_is_no_direct_one(why, emulated, monkeypatch):
    made, _, _ = product("tile-wise:64", torch.float16, few_tokens=False)
    on_gpu(monkeypatch)
    x = torch.randn(2, 35, made.features).half()
    monkeypatch.setattr(emulated, "cuLaunchKernelEx", lambda *_: 0)
    assert made._directly(x) is not None
    own = made._eager
    assert own(x.clone()) is not None
    assert NOT_DIRECT[why](x, own) is None
    assert own(x) is not None


@pytest.mark.parametrize("trains", [False, True])
def test_only_weights_that_are_being_trained_need_the_operator(trains, emulated, monkeypatch):
    """A first call and one that is known: with gradients enabled, and without."""
    made, _, _ = product("tile-wise:64", torch.float16, few_tokens=False)
    if trains:
        made.make_trainable()
    on_gpu(monkeypatch)
    monkeypatch.setattr(emulated, "cuLaunchKernelEx", lambda *_: 0)
    for tokens, is_enabled in ((70, True), (80, False)):
        x = torch.randn(tokens, made.features).half()
        with torch.set_grad_enabled(is_enabled):
            assert (made._directly(x) is None) == (trains and is_enabled)
    known = made._eager
    for is_enabled in (True, False):
        with torch.set_grad_enabled(is_enabled):
            assert (known(x) is None) == (trains and is_enabled)


def test_calls_are_known_again_by_how_x_lies_and_the_oldest_makes_room(emulated, monkeypatch):
    made, _, _ = product("tile-wise:64", torch.float16, few_tokens=False)
    on_gpu(monkeypatch)
    monkeypatch.setattr(emulated, "cuLaunchKernelEx", lambda *_: 0)
    monkeypatch.setattr(direct, "MOST_CALLS", 2)
    first, second, third = (torch.randn(count, made.features).half() for count in (70, 80, 90))
    for x in (first, second, first):
        assert made._directly(x).shape == (len(x), made.rows)
    own = made._eager
    assert own(second) is not None, "behind another one"
    assert made._directly(third) is not None
    assert own(first) is None, "it was the oldest"


def test_parts_of_a_direct_call_are_views_of_one_product(emulated, monkeypatch):
    made, _, _ = product("tile-wise:64", torch.float16, few_tokens=False)
    on_gpu(monkeypatch)
    launched = []
    monkeypatch.setattr(emulated, "cuLaunchKernelEx", lambda *_: launched.append(0) or 0)
    x = torch.randn(2, 35, made.features).half()
    for _ in range(2):
        launched.clear()
        parts = [made.part(x, first, size) for first, size in ((0, 128), (128, 256), (384, 128))]
        assert len(launched) == 2, "turning and multiplying"
        whole = parts[0]._base if parts[0]._base is not None else parts[0]
        for part, first, size in zip(parts, (0, 128, 384), (128, 256, 128), strict=True):
            assert part.shape == (2, 35, size)
            assert part.stride() == (35 * made.rows, made.rows, 1)
            assert part.data_ptr() == whole.data_ptr() + 2 * first
    made.part(x, 0, 128)
    x += 1
    launched.clear()
    made.part(x, 128, 256)
    assert len(launched) == 2, "x is another one now"


@pytest.mark.parametrize(("shape", "few_tokens"), [((2, 70), False), ((1, 1), True), ((13,), True)])
def test_a_product_written_features_first_is_read_as_it_lies(shape, few_tokens, emulated, monkeypatch):
    first, weight, bias = product("tile-wise:128", torch.float16, few_tokens=few_tokens)
    first.epilogue = Epilogue("relu", features_first=True)
    second, other, added = product("tile-wise:64", torch.float16, few_tokens=few_tokens, m=256, k=512)
    real, new = torch.Tensor.new_empty, []

    def known(*more):
        emulated.tensors = [*more, *new]
        for each in (first, second):
            emulated.tensors += [each.fp32_bias, *each.images]

    def told(self, *sizes, **options):
        new.append(real(self, *sizes, **options))
        known(x)
        return new[-1]

    monkeypatch.setattr(torch.Tensor, "new_empty", told)
    on_gpu(monkeypatch)
    x = torch.randn(*shape, first.features).half()
    known(x)
    y = second._directly(first._directly(x))
    hidden = ACTIVATIONS["relu"](torch.nn.functional.linear(x.float(), weight.float(), bias.float()))
    wanted = torch.nn.functional.linear(hidden, other.float(), added.float())
    assert y.is_contiguous()
    assert (y.float() - wanted).abs().max() < 4e-3 * wanted.abs().max()
    assert emulated.launched.count("transpose_rows") == (0 if shape == (1, 1) else 1)


def test_x_is_turned_by_one_launch(emulated, monkeypatch):
    x = torch.randn(70, 64).half()
    made = []

    real = torch.Tensor.new_empty

    def told(self, *sizes, **options):
        made.append(real(self, *sizes, **options))
        emulated.tensors = [x, *made]
        return made[-1]

    monkeypatch.setattr(torch.Tensor, "new_empty", told)
    x_t = transpose.turned(x, 72)
    assert torch.equal(x_t[:, :70], x.t())
    assert not x_t[:, 70:].any()
    assert emulated.launched == ["transpose_rows"]


@pytest.mark.parametrize("is_layer_norm", [False, True])
def test_x_is_normalised_and_turned_by_one_launch(is_layer_norm, emulated, monkeypatch):
    x = torch.randn(70, 64).half()
    scale, weight = torch.rand(70, 1), torch.randn(64).half()
    shift, bias = (torch.randn(70, 1), torch.randn(64).half()) if is_layer_norm else (None, None)
    given, real = (
        [each for each in (x, scale, weight, shift, bias) if each is not None],
        torch.Tensor.new_empty,
    )

    def told(self, *sizes, **options):
        given.append(real(self, *sizes, **options))
        emulated.tensors = given
        return given[-1]

    wanted = torch.ops.prunecast.norm_columns(x, shift, scale, weight, bias, not is_layer_norm, 72)
    monkeypatch.setattr(torch.Tensor, "new_empty", told)
    x_t = transpose.normed(x, shift, scale, weight, bias, rounds=not is_layer_norm, tokens=72)
    assert torch.allclose(x_t, wanted, rtol=2**-9, atol=2**-9)
    assert emulated.launched == ["transpose_rows"]
    assert transpose.normed(x, shift, scale, weight.float(), bias, rounds=True, tokens=72) is None


@pytest.mark.parametrize("few_tokens", [False, True])
def test_x_that_begins_between_whole_words_is_copied(few_tokens, emulated, monkeypatch):
    made, weight, bias = product("tile-wise:64", torch.float16, few_tokens=few_tokens, m=256, k=160)
    x = torch.randn(16, made.features).half()
    room = torch.zeros(made.features * 16 + 64).half()
    begin = -room.data_ptr() // 2 % 8 + 1
    x_t = room[begin : begin + made.features * 16].view(made.features, 16).copy_(x.t())
    assert x_t.data_ptr() % 16 == 2
    y, real = torch.empty(16, made.rows).half(), torch.Tensor.clone
    emulated.tensors = [y, made.fp32_bias, *made.images]

    def cloned(self, **options):
        emulated.tensors.append(real(self, **options))
        return emulated.tensors[-1]

    monkeypatch.setattr(torch.Tensor, "clone", cloned)
    given = (x_t, made.images, made.tiles, made.fp32_bias, 16, made.rows)
    found = launches.launch_of(LinearCall(*given, *made.epilogue, GPU.name, made.plan))
    found(x_t, made.images, made.fp32_bias, y)
    wanted = torch.nn.functional.linear(x.float(), weight.float(), bias.float())
    assert torch.allclose(y.float(), wanted, rtol=1e-2, atol=2e-2)


def test_nothing_is_prepared_while_a_graph_is_captured(emulated, monkeypatch):
    made, _, _ = product("tile-wise:128", torch.float16, few_tokens=False)
    monkeypatch.setattr(launches, "is_capturing", lambda: True)
    with pytest.raises(BadInput, match="call the layer once before it is captured"):
        call(emulated, made, torch.randn(200, made.features).half())


def test_what_was_prepared_is_not_planned_at_a_call(emulated, monkeypatch):
    made, weight, bias = product("tile-wise:128", torch.float16, few_tokens=True)
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    made.prepare(70)
    made.prepare(1)
    monkeypatch.setattr(launches, "plan_for", None)
    x = torch.randn(70, made.features).half()
    wanted = torch.nn.functional.linear(x.float(), weight.float(), bias.float())
    assert torch.allclose(call(emulated, made, x).float(), wanted, rtol=1e-2, atol=2e-2)
    assert len(launches._PREPARED) == 2


EXPERTS, HIDDEN, WIDTH = 5, 256, 192


def sparse_experts(pattern, dtype, max_tokens):
    torch.manual_seed(0)
    shapes = {"gate_up_proj": (EXPERTS, 2 * WIDTH, HIDDEN), "down_proj": (EXPERTS, HIDDEN, WIDTH)}
    sizes, found, parts = ExpertTokens(max_tokens, 2, EXPERTS), parse_pattern(pattern), []
    for shape in shapes.values():
        weight = (torch.randn(shape) * shape[-1] ** -0.5).to(dtype).flatten(0, 1)
        mask = found.prune({"w": weight.abs().float().numpy()}, 0.6)["w"]
        weight, tiles = weight * torch.from_numpy(mask), found.map(mask)
        layouts = expert_layouts(tiles, dtype_name(dtype), GPU, sizes, few_tokens=True)
        packed = PackedProduct(weight, tiles, None, gpu=GPU, max_tokens=max_tokens, layouts=layouts)
        parts.append(ExpertMatrix(packed, pattern, shape))
    return SparseExperts(torch.nn.ModuleDict({"act_fn": torch.nn.SiLU()}), *parts)


@pytest.mark.parametrize(
    ("pattern", "tokens", "dtype", "shares"),
    [
        ("tile-wise:128", 150, torch.float16, torch.float32),
        ("tile-wise:64", 150, torch.bfloat16, torch.bfloat16),
        ("tile-wise:64", 9, torch.float16, torch.float16),
        ("tile-wise:64", 1, torch.bfloat16, torch.float32),
    ],
)
def test_experts_give_what_they_give_on_a_cpu(pattern, tokens, dtype, shares, emulated):
    """Products of all experts in one launch each; an expert without tokens, and an index beyond them."""
    made = sparse_experts(pattern, dtype, 512)
    images = [image for part in (made.gate_up_proj, made.down_proj) for image in part.product.images]
    emulated.tensors = images
    record_new_tensors(emulated)
    for seed in (1, 2):  # the second call finds the launches prepared
        torch.manual_seed(seed)
        x, share = torch.randn(tokens, HIDDEN).to(dtype), torch.rand(tokens, 2).to(shares)
        chosen = torch.stack([torch.randperm(EXPERTS - 1)[:2] for _ in range(tokens)])
        chosen[: tokens // 4, 1] = EXPERTS
        emulated.tensors[len(images) :] = [x, share, chosen]
        call = made._call(x, chosen, share)
        expert_launches.prepared_experts(call)
        loaded = set(map(str, emulated.loaded))
        y = run_experts(call)
        assert set(map(str, emulated.loaded)) == loaded, "a capture may load nothing"
        wanted = torch.ops.prunecast.experts.default(*call)
        assert not y.isnan().any()
        assert float((y - wanted).float().norm() / wanted.float().norm()) < (
            2e-3 if dtype == torch.float16 else 1e-2
        )
    product = "tile_sm90" if tokens > 64 else "small_n"
    once = [
        "route_tokens",
        "list_items",
        "transpose_rows",
        product,
        "gate_rows",
        product,
        "sum_experts",
    ]
    assert emulated.launched == 2 * once


@pytest.mark.parametrize("shift", [0, 1, 8])
def test_x_of_experts_is_copied_only_if_it_begins_between_whole_words(shift, emulated, monkeypatch):
    """The kernel that gathers tokens reads 16 bytes at a time."""
    made = sparse_experts("tile-wise:64", torch.float16, 512)
    emulated.tensors = [
        image for part in (made.gate_up_proj, made.down_proj) for image in part.product.images
    ]
    record_new_tensors(emulated)
    room, copies, real = torch.zeros(9 * HIDDEN + 64).half(), [], torch.Tensor.clone
    begin = -room.data_ptr() // 2 % 8 + shift
    x = room[begin : begin + 9 * HIDDEN].view(9, HIDDEN).copy_(torch.randn(9, HIDDEN))
    chosen, share = torch.stack([torch.randperm(EXPERTS)[:2] for _ in range(9)]), torch.rand(9, 2)
    emulated.tensors += [x, share, chosen]
    call = made._call(x, chosen, share)
    expert_launches.prepared_experts(call)

    def cloned(self, **options):
        copies.append(real(self, **options))
        emulated.tensors.append(copies[-1])
        return copies[-1]

    monkeypatch.setattr(torch.Tensor, "clone", cloned)
    y = run_experts(call)
    monkeypatch.undo()
    wanted = torch.ops.prunecast.experts.default(*call)
    assert float((y - wanted).float().norm() / wanted.float().norm()) < 2e-3
    assert [copy.data_ptr() % 16 for copy in copies] == ([] if shift % 8 == 0 else [0])


@pytest.mark.parametrize("columns", [False, True])
def test_attention_with_a_mask_of_keys(columns, emulated, monkeypatch):
    """Queries, keys and values are parts of what one product wrote, 16 bytes aligned."""
    torch.manual_seed(0)
    qkv = torch.randn(2, 72, 3, 2, 64).half().permute(2, 0, 3, 1, 4)
    mask = torch.arange(72) < torch.tensor([[72], [30]])
    call = masked_attention.AttentionCall
    wanted = masked_attention._attend_by_torch(call(*qkv.float(), mask, 0.125, columns))
    emulated.tensors = [qkv, mask]
    record_new_tensors(emulated)
    on_gpu(monkeypatch)
    monkeypatch.setattr(masked_attention, "_CALLS", {})
    monkeypatch.setattr(masked_attention, "runs_on", lambda device, dtype: dtype == torch.float16)
    for _ in range(2):  # the second call finds the launch prepared
        y = masked_attention._attend_on_cuda(call(*qkv, mask, 0.125, columns))
        assert torch.allclose(y.float(), wanted, atol=2e-3)
    assert emulated.launched == ["attend", "attend"]
    off = torch.cat([qkv.flatten()[:1], qkv.flatten()])[1:].view(qkv.shape)
    masked_attention._attend_on_cuda(call(*off, mask, 0.125, columns))
    assert len(emulated.launched) == 2, "rows that are not aligned are left to torch"

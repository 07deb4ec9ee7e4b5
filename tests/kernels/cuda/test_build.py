"""The gate: every form compiles without a GPU to what the plan says, with nothing serialised or spilled."""

import json
from pathlib import Path

import pytest

from prunecast.errors import BadInput
from prunecast.kernels.device import build
from prunecast.kernels.device.build import SOURCES, KernelBuildError, compile_cubin
from prunecast.kernels.device.compile_inputs import ARCH, build_fill
from prunecast.kernels.tile.cuda.operator import SOURCES as TILE_SOURCES
from prunecast.kernels.tile.cuda.operator import TileOperator
from prunecast.plan.kernel_plan import KernelPlan
from tests.kernels.cuda.plans import plan_of, ragged_map
from tests.kernels.cuda.sass import opcodes

pytest.importorskip("cuda.bindings.nvrtc")
pytestmark = pytest.mark.compile

FORMS = ((128, 256), (128, 192), (128, 128), (128, 64), (64, 256), (64, 128))


def plan(form: tuple[int, int], dtype: str = "fp16") -> KernelPlan:
    return plan_of(ragged_map(form[0]), 200, *form, dtype=dtype)


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_has_the_resources_of_its_plan(form: tuple[int, int], dtype: str) -> None:
    p = plan(form, dtype)
    kernel = TileOperator.compile_inputs(p).build()  # threads and shared memory are checked by the source
    assert kernel.registers == p.resources.registers_per_thread == 168
    assert kernel.spill_bytes == 0
    assert kernel.shared_bytes == 0


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_bias_and_activation_do_not_spill(activation: str) -> None:
    p = plan((128, 256), "bf16")
    assert TileOperator.compile_inputs(p, activation=activation, bias=True).build().spill_bytes == 0


@pytest.mark.parametrize("form", FORMS)
def test_every_multiplication_takes_all_tokens(form: tuple[int, int]) -> None:
    """Two whole steps of 4 groups of 16 columns, and a last one of a loop and one more; see consumer."""
    p = plan(form)
    part = form[1] if form[0] == 128 else form[1] // 2
    found = opcodes(TileOperator.compile_inputs(p).build().cubin)
    assert found[f"HGMMA.64x{part}x16.F32"] == 4 + 4 + 2
    assert sum(n for name, n in found.items() if name.startswith("HGMMA")) == 4 + 4 + 2
    assert found["LDL"] == found["STL"] == 0


def test_c_leaves_by_the_copy_engine_or_16_bytes_at_a_time() -> None:
    p = plan((128, 256))
    found = opcodes(TileOperator.compile_inputs(p).build().cubin)
    assert any(name.startswith("UTMASTG") for name in found)
    assert any(name.startswith("STG") and ".128" in name for name in found)


def test_the_producer_copies_16_bytes_at_a_time() -> None:
    p = plan((128, 256))
    found = opcodes(TileOperator.compile_inputs(p).build().cubin)
    copies = {name: n for name, n in found.items() if name.startswith("LDGSTS")}
    assert copies
    assert all(".128" in name for name in copies)


def test_another_amount_of_shared_memory_than_the_plans_does_not_compile() -> None:
    p = plan((128, 128))
    wrong = TileOperator.compile_inputs(p, changes={"PLAN_SHARED_BYTES": p.resources.shared_bytes + 16})
    with pytest.raises(KernelBuildError, match="another amount of shared memory"):
        wrong.build()


def test_fill_compiles_for_every_element_type() -> None:
    for dtype in ("fp16", "bf16"):
        assert build_fill(dtype, "gelu", bias=True).spill_bytes == 0


def test_a_serialised_kernel_is_refused(tmp_path: Path, cubins: Path) -> None:
    """Two widths on the same registers are what ptxas serialises."""
    source = tmp_path / "mixed.cu"
    source.write_text(
        '#include "wgmma.cuh"\n'
        'extern "C" __global__ void mixed(float* out, u64 w, u64 t) {\n'
        "  float sums[128];\n"
        "  float(&low)[64] = reinterpret_cast<float(&)[64]>(sums);\n"
        "  multiply_fence(); multiply(sums, w, t, 0); multiply_commit();\n"
        "  multiply_fence(); multiply(low, w, t, 1); multiply_commit(); multiply_wait<0>();\n"
        "  for (int i = 0; i < 128; ++i) out[i] = sums[i];\n}\n"
    )
    with pytest.raises(KernelBuildError, match="serialised"):
        compile_cubin(source, ARCH, {}, includes=[TILE_SOURCES], folder=cubins)


def test_the_cache_answers_a_second_call_and_keys_headers_too(tmp_path: Path) -> None:
    header, source = tmp_path / "a.cuh", tmp_path / "k.cu"
    header.write_text("#define VALUE 1\n")
    source.write_text('#include "a.cuh"\nextern "C" __global__ void k(int* x) { *x = VALUE; }\n')
    first = compile_cubin(source, ARCH, {}, folder=tmp_path)
    record = first.cubin.with_suffix(".json")
    record.write_text(json.dumps({**json.loads(record.read_text()), "registers": 99}))
    assert compile_cubin(source, ARCH, {}, folder=tmp_path).registers == 99
    header.write_text("#define VALUE 2\n")
    assert compile_cubin(source, ARCH, {}, folder=tmp_path).registers != 99


def test_an_empty_cache_is_filled_as_the_first_time(tmp_path: Path) -> None:
    """With a driver there NVRTC has a cache of its own, which does not say what a kernel uses."""
    source = SOURCES / "fill_rows.cu"
    first, again = (
        compile_cubin(source, ARCH, {"BIAS": 0, "ACTIVATION": 0}, folder=tmp_path / n) for n in "ab"
    )
    assert first.registers == again.registers > 0
    assert first.cubin.read_bytes() == again.cubin.read_bytes()


def test_what_does_not_compile_says_why(tmp_path: Path) -> None:
    source = tmp_path / "k.cu"
    source.write_text("this is no C++;")
    with pytest.raises(KernelBuildError, match=r"k\.cu"):
        compile_cubin(source, ARCH, {}, folder=tmp_path)


def test_an_unknown_activation_is_refused() -> None:
    with pytest.raises(BadInput, match="activation must be one of none, relu, gelu"):
        TileOperator.compile_inputs(plan((128, 256)), activation="tanh")


@pytest.mark.parametrize("most", [0, 64])
def test_spills_are_refused_beyond_their_limit(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Another release of NVRTC may spill a few bytes in a form that has none here."""
    monkeypatch.setattr(build, "MOST_SPILL_BYTES", most)
    parts = {"cubin": Path("k"), "arch": ARCH, "registers": 168, "shared_bytes": 0, "log": ""}
    for spilled in (0, most, most + 1):
        kernel = build.CompiledKernel(**parts, spill_bytes=spilled)
        build._refuse_bad_code(kernel, Path("k.cu"), {}, allow_spills=True)
        if spilled <= most:
            build._refuse_bad_code(kernel, Path("k.cu"), {}, allow_spills=False)
        else:
            with pytest.raises(KernelBuildError, match=f"spills {spilled} bytes"):
                build._refuse_bad_code(kernel, Path("k.cu"), {}, allow_spills=False)

"""The emulated machine itself: rounding, asm statements as calls, and what no kernel may do."""

import ctypes
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tests.kernels.cuda.on_cpu.on_cpu import (
    UNAVAILABLE,
    EmulationError,
    Grid,
    SourceError,
    build_on_cpu,
    machine_library,
    run_on_cpu,
)
from tests.kernels.cuda.on_cpu.translate import TranslationError, translate

pytestmark = pytest.mark.skipif(UNAVAILABLE, reason="needs Linux and g++")


def run(
    tmp_path: Path, folder: Path, body: str, *, threads: int = 32, blocks: int = 1, **choices
) -> np.ndarray:
    """A kernel of `body`, with `out` (uint32, 64) in global memory, `base` of 1 KB shared memory, and `t`."""
    source = tmp_path / "k.cu"
    source.write_text(
        'extern "C" __global__ void k(unsigned* out) {\n'
        "  extern __shared__ unsigned char shared[];\n"
        "  const unsigned base = __cvta_generic_to_shared(shared), t = threadIdx.x;\n" + body + "\n}\n"
    )
    out = np.arange(100, 164, dtype=np.uint32)
    kernel = build_on_cpu(source, "k", {}, folder)
    run_on_cpu(kernel, Grid(blocks, threads, 1024, **choices), [np.array([out.ctypes.data])], [out])
    return out


COPY = (
    'asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(base + 4 * t), "l"(out + t) : "memory");\n'
)
COMMIT = 'asm volatile("cp.async.commit_group;" ::: "memory");\n'
WAIT = 'asm volatile("cp.async.wait_group %0;" ::"n"(0) : "memory");\n'
READ = 'unsigned v; asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(base + 4 * t)); out[32 + t] = v;\n'
BARRIER = (
    'if (t == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" '
    '::"r"(base + 512), "r"({count}) : "memory");\n'
    "__syncthreads();\n"
)
ARRIVE = 'asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(base + 512) : "memory");\n'
WAIT_FULL = (
    'asm volatile("{\\n.reg .pred p;\\nAGAIN:\\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\\n'
    '@p bra DONE;\\nbra AGAIN;\\nDONE:\\n}\\n" ::"r"(base + 512), "r"(0) : "memory");\n'
)


def test_halves_are_rounded_as_numpy_rounds(cubins: Path) -> None:
    library = ctypes.CDLL(str(machine_library(cubins)))
    library.emulated_half.argtypes = library.emulated_bf16.argtypes = [ctypes.c_float]
    library.emulated_from_half.restype = ctypes.c_float
    library.emulated_half.restype = library.emulated_bf16.restype = ctypes.c_ushort
    bits = np.random.default_rng(0).integers(0, 2**32, 20000, dtype=np.uint64).astype(np.uint32)
    near = (np.arange(0, 2**32, 2**19, dtype=np.uint64) + 2**12).astype(
        np.uint32
    )  # ties, and subnormals of fp16
    values = np.concatenate((bits, near)).view(np.float32)
    values = values[np.isfinite(values)]
    with np.errstate(over="ignore"):
        wanted = values.astype(np.float16).view(np.uint16)
    assert [library.emulated_half(float(v)) for v in values] == wanted.tolist()
    wanted = values.astype(ml_dtypes.bfloat16).view(np.uint16)
    assert [library.emulated_bf16(float(v)) for v in values] == wanted.tolist()
    back = [library.emulated_from_half(i) for i in range(0, 0x7C01)]
    assert back == np.arange(0x7C01, dtype=np.uint16).view(np.float16).astype(np.float32).tolist()


def test_a_copy_lands_when_it_is_waited_for_or_at_once(tmp_path: Path, cubins: Path) -> None:
    assert (run(tmp_path, cubins, COPY + COMMIT + WAIT + READ)[32:] == np.arange(100, 132)).all()
    assert (run(tmp_path, cubins, COPY + COMMIT + READ)[32:] == 0x7FFE7FFE).all()
    assert (run(tmp_path, cubins, COPY + READ, landing="at-once")[32:] == np.arange(100, 132)).all()


def test_a_barrier_lets_nobody_past_before_all_have_arrived(tmp_path: Path, cubins: Path) -> None:
    body = (
        BARRIER.format(count=64)
        + "if (t < 32) out[t] = 0;\n"
        + ARRIVE
        + WAIT_FULL
        + "if (t > 31) out[t] = out[t - 32];"
    )
    for backwards in (False, True):
        assert (run(tmp_path, cubins, body, threads=64, backwards=backwards) == 0).all()


def test_too_few_arrivals_are_a_deadlock_that_names_the_wait(tmp_path: Path, cubins: Path) -> None:
    with pytest.raises(EmulationError, match="deadlock: 32 threads wait for a barrier in shared memory"):
        run(tmp_path, cubins, BARRIER.format(count=33) + ARRIVE + WAIT_FULL)


def test_too_many_arrivals_are_an_error(tmp_path: Path, cubins: Path) -> None:
    body = (
        'asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" '
        '::"r"(base + 512), "r"(16) : "memory");\n'
    )
    with pytest.raises(EmulationError, match="more arrivals at a barrier than it waits for"):
        run(tmp_path, cubins, BARRIER.format(count=31) + body)


def test_a_barrier_without_initialisation_is_an_error(tmp_path: Path, cubins: Path) -> None:
    with pytest.raises(EmulationError, match="never initialised"):
        run(tmp_path, cubins, ARRIVE)


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        (COPY.replace("out + t", "out + 40 + t"), "outside of all arrays"),
        (COPY.replace("out + t", "(char*)out + t"), "not aligned"),
        (COPY.replace("4 * t", "1024"), "outside of the block's memory"),
        ("if (t < 16) __syncwarp(); else __shfl_sync(~0u, t, 0);", "meet at different instructions"),
        ("if (t < 16) __syncwarp();", "deadlock: 16 threads wait for __syncwarp"),
        ("__trap();", "trapped"),
    ],
)
def test_what_no_kernel_may_do(body: str, wrong: str, tmp_path: Path, cubins: Path) -> None:
    with pytest.raises(EmulationError, match=wrong):
        run(tmp_path, cubins, body)


def test_blocks_that_wait_for_others_need_them_on_the_machine(tmp_path: Path, cubins: Path) -> None:
    """Block 0 waits for block 1; the same with one block at a time never ends."""
    body = (
        "unsigned v = 0; if (blockIdx.x == 0) { while (v != 7) "
        'asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(out + 32 + t) : "memory"); }'
        "else out[32 + t] = 7;"
    )
    assert (run(tmp_path, cubins, body, blocks=2)[32:] == 7).all()
    with pytest.raises(EmulationError, match="deadlock: 32 threads wait for a value in memory"):
        run(tmp_path, cubins, body, blocks=2, resident=1)


WRITE = 'if (t == 0) asm volatile("st.shared.b32 [%0], %1;" ::"r"(base), "r"(7) : "memory");\n'
LOAD = 'unsigned v; asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(base)); out[t] = v;\n'


def test_warps_that_nothing_orders_are_a_race(tmp_path: Path, cubins: Path) -> None:
    """In whatever order they run."""
    for backwards in (False, True):
        with pytest.raises(EmulationError, match="a race: shared memory is"):
            run(tmp_path, cubins, WRITE + LOAD, threads=64, backwards=backwards)


def test_so_are_lanes_of_a_warp(tmp_path: Path, cubins: Path) -> None:
    """A shuffle brings them together, but orders no memory."""
    assert (run(tmp_path, cubins, WRITE + "__syncwarp();" + LOAD)[:32] == 7).all()
    for between in ("", "__shfl_sync(~0u, t, 0);"):
        with pytest.raises(EmulationError, match="another lane is writing"):
            run(tmp_path, cubins, WRITE + between + LOAD)
    with pytest.raises(EmulationError, match="another lane is reading"):
        run(tmp_path, cubins, LOAD + "__shfl_sync(~0u, t, 0);" + WRITE)


@pytest.mark.parametrize("order", ["__syncthreads();\n", BARRIER.format(count=64) + ARRIVE + WAIT_FULL])
def test_barriers_order_warps(order: str, tmp_path: Path, cubins: Path) -> None:
    assert (run(tmp_path, cubins, WRITE + order + LOAD, threads=64) == 7).all()


def test_a_barrier_orders_only_who_has_waited_for_it(tmp_path: Path, cubins: Path) -> None:
    order = BARRIER.format(count=64) + ARRIVE + "if (t < 32) " + "{" + WAIT_FULL + "}"
    with pytest.raises(EmulationError, match="a race"):
        run(tmp_path, cubins, order.join(("", WRITE)) + LOAD, threads=64)


def test_boxes_are_stored_when_they_must_be_and_cut_at_the_edge(tmp_path: Path, cubins: Path) -> None:
    """A box of 2 rows x 64 elements at row 1 of a matrix of 2 rows x 32, swizzled by 128 bytes."""
    fill = (
        "for (unsigned i = t; i < 64; i += 32) {\n"
        "  const unsigned to = base + (i * 4 ^ (i / 32 & 7) * 16);\n"
        '  asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(i) : "memory");\n}\n'
    )
    send = (
        'asm volatile("fence.proxy.async.shared::cta;" ::: "memory");\n'
        "__syncwarp();\n"
        "unsigned long long map[16] = {(unsigned long long)out, 32, 2, 64, 64, 2};\n"
        "if (t == 0) "
        'asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" '
        '::"l"(map), "r"(0), "r"(1), "r"(base) : "memory");\n'
        'asm volatile("cp.async.bulk.commit_group;" ::: "memory");\n'
    )
    wait = 'asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");\n'
    out = run(tmp_path, cubins, fill + send + wait)
    assert (out[:16] == np.arange(100, 116)).all()
    assert (out[16:32] == np.arange(16)).all()
    assert (out[32:] == np.arange(132, 164)).all()
    with pytest.raises(EmulationError, match="ends before its bulk stores have been read"):
        run(tmp_path, cubins, fill + send)
    with pytest.raises(EmulationError, match="without a fence"):
        run(tmp_path, cubins, fill + send.split("\n", 1)[1] + wait)


@pytest.mark.parametrize(
    ("before", "after", "right"),
    [
        ("", "", False),
        ("t < 32", "", False),
        ("t > 31", "", True),
        ("", "t < 32", True),
        ("", "t > 31", False),
    ],
)
def test_a_fence_is_the_writers_or_the_readers_who_knows(
    before: str, after: str, right: bool, tmp_path: Path, cubins: Path
) -> None:
    """Warp 1 writes, warp 0 stores it as a box; who makes a fence before and after both meet."""
    fence = 'asm volatile("fence.proxy.async.shared::cta;" ::: "memory");\n'
    body = (
        'if (t > 31) asm volatile("st.shared.b32 [%0], %1;" ::"r"(base + 4 * (t - 32)), "r"(t) : "memory");\n'
        + (f"if ({before}) {fence}" if before else "")
        + "__syncthreads();\n"
        + (f"if ({after}) {fence}" if after else "")
        + "unsigned long long map[16] = {(unsigned long long)out, 64, 1, 128, 64, 1};\n"
        "if (t == 0) "
        'asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" '
        '::"l"(map), "r"(0), "r"(0), "r"(base) : "memory");\n'
        'asm volatile("cp.async.bulk.commit_group;" ::: "memory");\n'
        'asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");\n'
    )
    if right:
        assert (run(tmp_path, cubins, body, threads=64)[:32] == np.arange(32, 64)).all()
    else:
        with pytest.raises(EmulationError, match="without a fence"):
            run(tmp_path, cubins, body, threads=64)


def test_another_number_of_arguments_is_refused(tmp_path: Path, cubins: Path) -> None:
    source = tmp_path / "two.cu"
    source.write_text('extern "C" __global__ void two(int a, const __grid_constant__ int b) {}')
    kernel = build_on_cpu(source, "two", {}, cubins)
    one = np.zeros(1, np.int32)
    with pytest.raises(EmulationError, match="takes 2 arguments, got 1"):
        run_on_cpu(kernel, Grid(1, 32, 0), [one], [])
    run_on_cpu(kernel, Grid(1, 32, 0), [one, one], [])


def test_an_unknown_instruction_does_not_compile(tmp_path: Path, cubins: Path) -> None:
    with pytest.raises(SourceError, match="red_async"):
        run(tmp_path, cubins, 'asm volatile("red.async.u32 [%0], 1;" ::"r"(base));')


def test_asm_is_translated_word_by_word() -> None:
    text = 'f(); asm volatile("mad.wide.s32 %0, %1, -4, %2;" : "=l"(to[1]) : "r"(a ? b : c), "l"(x::y)); g();'
    found = translate(text)
    assert (
        "u64 p0; u32 p1 = (u32)(a ? b : c); u64 p2 = (u64)(x::y); ptx::mad_wide_s32(p0, p1, -4, p2);" in found
    )
    assert "(to[1]) = p0; }" in found
    assert found.startswith("f(); {")
    assert found.endswith("}; g();")


def test_forms_that_are_not_known_are_refused() -> None:
    with pytest.raises(TranslationError, match="static shared memory"):
        translate("__shared__ int x[3];")
    with pytest.raises(TranslationError, match="constraint 'd'"):
        translate('asm("mov.f64 %0, %1;" : "=f"(x) : "d"(y));')
    with pytest.raises(TranslationError, match=r"operand '%0 \+ 16'"):
        translate('asm("ld.shared.b32 %1, [%0 + 16];" : "=r"(x) : "r"(y));')

"""End-to-end times: sums and rooflines by hand."""

from dataclasses import replace

import pytest

from prunecast.errors import BadInput
from prunecast.hardware import STATES, MemoryPass, load_gpu
from prunecast.kernels.libraries.attention.shape import Attention
from prunecast.launch import Conditions
from prunecast.workload.graph import ModelGraph, Operation, Pass, load_pass, model_time
from prunecast.workload.graph.model_time import mixed_time
from prunecast.workload.graph.runtimes import engine_seconds, torch_seconds

GPU = load_gpu("h200-sxm")


def diamond() -> ModelGraph:
    model = ModelGraph(name="diamond")
    model.add(Operation(name="x", kind="input", elements_out=100, layout="tokens"))
    for name, after in (("a", ["x"]), ("b", ["x"]), ("c", ["a", "b"])):
        model.add(Operation(name=name, kind="gemm", m=10, k=10, n=10, elements_out=100), after)
    return model


def test_one_stream_adds_up() -> None:
    times = model_time(diamond(), GPU, {"a": 3e-6, "b": 5e-6, "c": 2e-6})
    assert times.seconds == pytest.approx(10e-6)


def test_a_tensor_with_two_sparse_readers_is_transposed_once() -> None:
    seconds = {"a": 3e-6, "b": 5e-6, "c": 2e-6}
    in_stream = Conditions(launch="stream")
    times = model_time(diamond(), GPU, seconds, sparse=frozenset("abc"), conditions=in_stream)
    once = MemoryPass(copied_bytes=2 * 100 * 2, start_s=GPU.stream_launch_s).seconds(GPU)
    assert times.transpose_seconds == pytest.approx(once)
    assert len(times.transposes) == 2


def test_small_tensors_move_at_the_speed_of_l2_and_large_ones_of_dram() -> None:
    gpu = replace(GPU, graph_launch_s=0.0)
    small, large = 1000, GPU.l2_usable_bytes
    norm = [Operation(name="n", kind="normalise", elements_in=e, elements_out=e) for e in (small, large)]
    assert engine_seconds(norm[0], gpu) == pytest.approx(4 * small / GPU.l2_bytes_per_s)
    assert engine_seconds(norm[1], gpu) == pytest.approx(4 * large / GPU.dram_copy_bytes_per_s)


@pytest.mark.parametrize("seconds", [engine_seconds, torch_seconds])
@pytest.mark.parametrize("kind", ["normalise", "elementwise"])
def test_copies_that_run_take_their_time_and_idle_ones_none(seconds, kind) -> None:
    one = Operation(name="n", kind=kind, elements_in=1000, elements_out=1000)
    assert seconds(replace(one, copies=4), GPU) == pytest.approx(4 * seconds(one, GPU))
    assert seconds(replace(one, copies=4, idle=1), GPU) == pytest.approx(3 * seconds(one, GPU))


def test_long_attention_is_bound_by_arithmetic() -> None:
    model = load_pass("llama-2-7b", Pass(1, 4096))
    mixing = model["layer.0.attention"]
    seconds = engine_seconds(mixing, GPU)
    # 2 x 4096^3 operations, half of 989 TFLOP/s at most: at least 0.139 ms; FlashAttention-3 shows 0.2 to 0.3
    assert 0.139e-3 < seconds < 0.4e-3


BEST_TFLOPS = {
    # Head width -> fastest forward pass with 512, 1024, ... 16384 keys on an H100 SXM, no mask
    # (J. Shah et al., FlashAttention-3, 2024, figure 5: Triton, cuDNN or FlashAttention-3)
    64: (340, 392, 460, 476, 496, 497),
    128: (497, 574, 625, 638, 646, 648),
    256: (482, 639, 707, 736, 746, 756),
}


@pytest.mark.parametrize("width", BEST_TFLOPS)
def test_attention_is_nearly_as_fast_as_the_fastest_published(width: int) -> None:
    out = 16384 * 2048
    for keys, best in zip((512, 1024, 2048, 4096, 8192, 16384), BEST_TFLOPS[width], strict=True):
        flops = 4.0 * out * keys
        mixing = Operation(
            name="a",
            kind="attention",
            flops=flops,
            attention=Attention(16384 // keys, keys, keys, 2048 // width, 2048 // width, width, False),
            elements_out=out,
        )
        seconds = engine_seconds(mixing, GPU)
        # Engines reach less with few keys: vLLM 250 to 330 TFLOP/s with 512 keys of 64 features (H100)
        assert 0.7 * best < flops / seconds / 1e12 < 1.125 * best


def test_attention_of_bert_is_about_as_fast_as_measured() -> None:
    """In passes of torch on an H200 the kernel takes 19.0 us, its fill 0.8 and their gaps 1.0
    (h200-sxm-promises-2026-11-28.json, 8 x 512). Alone it took 24.5 (2026-11-21), the kernel of engines more.
    """
    mixing = load_pass("bert-base", Pass(8))["layer.0.attention"]
    assert 24.5e-6 < engine_seconds(mixing, GPU) < 1.5 * 24.5e-6
    assert torch_seconds(mixing, GPU) == pytest.approx(20.8e-6, rel=0.12)


def test_products_of_activations_run_at_the_clock_of_the_state() -> None:
    """At its power limit, an L40S runs attention of 64 features per head at 1 / 1.32 of its burst clock."""
    gpu = load_gpu("l40s")
    fused = load_pass("bert-base", Pass(8))["layer.0.attention"]
    unfused = Operation(name="a", kind="attention", flops=1e12, elements_out=1000)
    for seconds, mixing in ((engine_seconds, fused), (torch_seconds, fused), (engine_seconds, unfused)):
        burst, sustained = (seconds(mixing, gpu, Conditions(state)) for state in STATES)
        assert 1.1 * burst < sustained < 1.4 * burst


def test_every_kind_is_in_the_sum() -> None:
    model = load_pass("bert-small", Pass(2, 128))
    times = model_time(model, GPU, dict.fromkeys(model.products, 1e-5))
    assert sum(times.seconds_by_kind.values()) == pytest.approx(times.seconds)
    assert {"gemm", "attention", "normalise"} <= set(times.seconds_by_kind)


def test_the_mean_of_passes_is_weighted_by_their_shares() -> None:
    short, long = (model_time(diamond(), GPU, dict.fromkeys("abc", us * 1e-6)) for us in (1, 5))
    for share in (0.25, 0.5):
        mean = mixed_time([(share, short), (1.0 - share, long)])
        for found, pair in (
            (mean.seconds, (short.seconds, long.seconds)),
            (mean.seconds_by_kind["gemm"], (3e-6, 15e-6)),
        ):
            assert found == pytest.approx(share * pair[0] + (1.0 - share) * pair[1])
    alone = mixed_time([(1.0, short)])
    assert (alone.seconds, alone.seconds_by_kind) == (short.seconds, short.seconds_by_kind)


def test_times_name_the_kernels_of_attention_of_all_passes() -> None:
    passes = []
    for run in ({"tokens": 512}, {"tokens": 1, "cached": 512}):
        model = load_pass("llama-2-7b", Pass(1, **run))
        passes.append((0.5, model_time(model, load_gpu("b200"), dict.fromkeys(model.products, 1e-5))))
    assert passes[0][1].kernels_by_kind == {"attention": ("FlashInfer TRT-LLM",)}
    encoder = load_pass("bert-small", Pass(2, 128))
    passes.append((1.0, model_time(encoder, load_gpu("b200"), dict.fromkeys(encoder.products, 1e-5))))
    assert mixed_time(passes).kernels_by_kind == {"attention": ("FlashInfer TRT-LLM", "FlashAttention 4")}
    assert model_time(diamond(), GPU, {"a": 1e-6, "b": 1e-6, "c": 1e-6}).kernels_by_kind == {}


def test_a_product_without_a_time_is_named() -> None:
    with pytest.raises(BadInput, match="b"):
        model_time(diamond(), GPU, {"a": 1e-6, "c": 1e-6})


def test_names_are_unique_and_known() -> None:
    model = diamond()
    with pytest.raises(BadInput, match="two operations"):
        model.add(Operation(name="a", kind="elementwise"))
    with pytest.raises(BadInput, match="not there"):
        model.add(Operation(name="d", kind="elementwise"), ["nobody"])
    with pytest.raises(BadInput, match="at least 1"):
        Operation(name="d", kind="gemm")

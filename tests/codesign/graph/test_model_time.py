"""End-to-end times: sums, paths and rooflines by hand."""

import pytest

from prunecast.codesign.graph import ModelGraph, Operation, load_workload, model_time
from prunecast.codesign.graph.other_times import other_seconds, transpose_seconds
from prunecast.errors import BadInput
from prunecast.hardware import load_gpu

GPU = load_gpu("h200-sxm")


def diamond() -> ModelGraph:
    model = ModelGraph(name="diamond")
    model.add(Operation(name="x", kind="input", elements_out=100, layout="tokens"))
    for name, after in (("a", ["x"]), ("b", ["x"]), ("c", ["a", "b"])):
        model.add(Operation(name=name, kind="gemm", m=10, k=10, n=10, elements_out=100), after)
    return model


def test_one_stream_adds_up_and_the_critical_path_is_the_longest() -> None:
    times = model_time(diamond(), GPU, {"a": 3e-6, "b": 5e-6, "c": 2e-6})
    assert times.seconds == pytest.approx(10e-6)
    assert times.critical_path == ("x", "b", "c")
    assert times.critical_seconds == pytest.approx(7e-6)
    assert times.prunable_share == 1.0


def test_a_tensor_with_two_sparse_readers_is_transposed_once() -> None:
    seconds = {"a": 3e-6, "b": 5e-6, "c": 2e-6}
    times = model_time(diamond(), GPU, seconds, sparse=frozenset("abc"), launch="stream")
    once = transpose_seconds(100, GPU, element_bytes=2, launch_s=GPU.stream_launch_s)
    assert times.transpose_seconds == pytest.approx(once)
    assert len(times.transposes) == 2


def test_small_tensors_move_at_the_speed_of_l2_and_large_ones_of_dram() -> None:
    cost = {"element_bytes": 2, "launch_s": 0.0}
    small, large = 1000, GPU.l2_usable_bytes
    norm = [Operation(name="n", kind="normalise", elements_in=e, elements_out=e) for e in (small, large)]
    assert other_seconds(norm[0], GPU, **cost) == pytest.approx(4 * small / GPU.l2_bytes_per_s)
    assert other_seconds(norm[1], GPU, **cost) == pytest.approx(4 * large / GPU.dram_bytes_per_s)


def test_long_attention_is_bound_by_arithmetic() -> None:
    model = load_workload("llama-2-7b", batch=1, sequence=4096)
    mixing = model["layer.0.attention"]
    seconds = other_seconds(mixing, GPU, element_bytes=2, launch_s=0.0)
    # 2 x 4096^3 operations, half of 989 TFLOP/s at most: at least 0.139 ms; FlashAttention-3 shows 0.2 to 0.3
    assert 0.139e-3 < seconds < 0.4e-3


def test_every_kind_is_in_the_sum() -> None:
    model = load_workload("bert-small", batch=2, sequence=128)
    times = model_time(model, GPU, dict.fromkeys(model.products, 1e-5))
    assert sum(times.seconds_by_kind.values()) == pytest.approx(times.seconds)
    assert {"gemm", "attention", "normalise"} <= set(times.seconds_by_kind)
    assert 0.0 < times.prunable_share < 1.0


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

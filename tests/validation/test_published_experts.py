"""Readers of published layers of experts and fp8 products, and the fit to them."""

import csv
import io

import numpy as np
import pytest

from benchmarks.published import experts, layers, scaled
from benchmarks.published.calls import priced_by, print_calls
from benchmarks.published.fit_calls import READERS, Table, fit
from prunecast.hardware import load_gpu
from prunecast.hardware.costs import load_costs

H100 = load_gpu("h100-sxm")
MOE = """kernel_source,num_tokens,hidden_size,inter_size,topk,num_experts,distribution,seconds
vllm_unquantizedfusedmoe_triton_tritonexperts,16,2048,768,8,128,balanced,4.2e-4
vllm_unquantizedfusedmoe_triton_tritonexperts,16,2688,1856,6,128,power_law_1.2,3.8e-4
sglang_fused_moe_triton,16,2688,1856,6,128,power_law_1.01,6e-4
vllm_flashinfer_cutlass,4096,4096,14336,2,8,balanced,6e-3
"""
FP8 = """gemm_dtype,kernel_source,m,n,k,seconds,quantise_seconds
fp8,CutlassFP8ScaledMMLinearKernel,3840,12288,3072,0.000263105,1.45568e-05
fp8,CutlassFP8ScaledMMLinearKernel,16,1024,1024,6e-6,
fp8_block,DeepGemmFp8BlockScaledMMKernel,512,1024,2048,8.7984e-05,3.38133e-06
fp8_block,DeepGemmFp8BlockScaledMMKernel,16384,8192,8192,1.9e-3,1e-4
"""
ALONE = "M,N,K,avg_duration\n84,1024,2048,9.8322\n131072,5120,6912,8025.8\n"


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_the_kernel_of_a_row_selects_form_and_gate():
    rows = rows_of(MOE)
    assert [experts.form_of(row) for row in rows] == [
        "vllm-triton",
        "vllm-triton",
        "sglang-triton",
        "grouped",
    ]
    assert [experts.layer_of(row).gated for row in rows] == [True, False, True, True]
    assert experts.layer_of(rows[1]).routing == "power-law:1.2"


@pytest.mark.parametrize(("name", "text"), [("moe_bf16_h100.csv", MOE), ("gemm_fp8_alone_h100.csv", ALONE)])
def test_rows_are_priced_within_their_bounds(name, text):
    found = priced_by(name)(rows_of(text), H100)
    assert (found.low < found.seconds).all()
    assert (found.seconds < found.high).all()
    assert np.abs(np.log(found.seconds / found.measured)).max() < 0.7


def test_calls_of_an_engine_are_read_with_and_without_rounding():
    found = priced_by("gemm_fp8_h100.csv")(rows_of(FP8), H100)
    assert found.kind.tolist() == ["tensor", "product", "tensor", "block host", "block"]
    whole, product = found.seconds[:2]
    assert product == pytest.approx(whole - scaled.rounding_seconds(rows_of(FP8)[0], H100))
    assert found.measured[1] == pytest.approx(0.000263105 - 1.45568e-05)


def test_files_of_other_gpus_are_read_by_name(tmp_path, capsys):
    for name in ("moe_bf16_h20.csv", "moe_bf16_gb200.csv"):
        (tmp_path / name).write_text(MOE)
        print_calls(tmp_path / name)
        assert "balanced" in capsys.readouterr().out
    (tmp_path / "gemm_fp8_rtx_pro_6000.csv").write_text(FP8)
    print_calls(tmp_path / "gemm_fp8_rtx_pro_6000.csv")
    assert "tensor" in capsys.readouterr().out


def test_a_fit_finds_the_numbers_that_made_its_rows():
    true = dict(load_costs("prunecast.kernels.libraries.experts", 90).entries.items())
    numbers = {name: float(cost.value) for name, cost in true.items()}
    rows = [
        {
            "kernel_source": "triton",
            "num_tokens": str(tokens),
            "hidden_size": "2048",
            "inter_size": "768",
            "topk": "8",
            "num_experts": "128",
            "distribution": "balanced",
        }
        for tokens in (1, 2, 4, 8, 16, 32, 48, 64, 100, 128, 256, 512, 1024, 4096, 8192)
    ]
    for row in rows:
        row["seconds"] = str(experts.call_of(row, H100, numbers).seconds)
    begun = {**numbers, "triton_dram_share": 0.7, "triton_launch_s": 2e-6}
    found = fit(
        READERS["experts"], [Table("moe", H100, rows)], begun, ["triton_dram_share", "triton_launch_s"]
    )
    for name, value in found.items():
        assert value == pytest.approx(numbers[name], rel=1e-3)


POWER = "m,n,k,seconds,watts,power_limit\n4096,8192,4096,4.5e-4,690,700\n8,2048,512,3e-6,166,700\n"


def test_watts_joules_and_seconds_are_read(tmp_path, capsys):
    found = priced_by("power_bf16_h200.csv")(rows_of(POWER), load_gpu("h200-sxm"))
    assert found.kind[:2].tolist() == ["watts", "watts, below half"]
    assert found.measured.tolist() == pytest.approx([690, 166, 690 * 4.5e-4, 166 * 3e-6, 4.5e-4, 3e-6])
    assert found.seconds[0] == pytest.approx(690, rel=0.15)
    path = tmp_path / "power_bf16_h200.csv"
    path.write_text(POWER)
    print_calls(path)
    printed = capsys.readouterr().out
    assert "watts        above 20 us" in printed
    assert "watts, below half below 20 us" in printed


LAYERS = "layer,tokens,time_us\nact_fn,2048,168.9\ndown_proj,1,126.8\nlayernorm,512,6.4\n"


def test_layers_of_a_model_are_read_by_the_name_of_their_file(tmp_path, capsys):
    name = "layers_rtx4090_meta-llama_llama-3.1-8b_bf16.csv"
    assert layers.file_of(name) == ("rtx-4090", "llama-3-8b")
    (tmp_path / name).write_text(LAYERS)
    print_calls(tmp_path / name)
    printed = capsys.readouterr().out
    assert "act_fn       above 20 us judge" in printed
    assert "layernorm    below 20 us judge" in printed


@pytest.mark.parametrize(
    "name", ["layers_rtx4090_meta_llama-9_bf16.csv", "layers_zx81_llama-3-8b.csv", "layers_x.csv"]
)
def test_layers_of_unknown_models_are_one_line(name, tmp_path, capsys):
    (tmp_path / name).write_text(LAYERS)
    print_calls(tmp_path / name)
    assert capsys.readouterr().out.startswith(f"{name}: {name}: wanted layers_GPU")

"""Files of published times: which GPU a name means, and the errors of calls."""

import numpy as np
import pytest

from benchmarks.published.calls import READERS, errors, print_calls
from benchmarks.published.priced import Priced
from benchmarks.published.products import print_products
from benchmarks.published.tables import dense_tables, gpu_of_file
from prunecast.errors import BadInput
from prunecast.hardware import gpu_names

HEADER = "kind,kernel_source,batch_size,isl,step,num_heads,num_key_value_heads,head_dim,window_size,seconds"
ATTENTION = f"""{HEADER}
context,fa3,1,1024,0,32,8,128,0,5e-5
generation,fa3,8,1,1023,32,8,128,0,2e-5
"""


@pytest.mark.parametrize(
    ("name", "gpu"),
    [
        ("attention_bf16_h100.csv", "h100-sxm"),
        ("gemm_bf16_a100.csv", "a100-sxm4-80gb"),
        ("moe_bf16_rtx_pro_6000.csv", "rtx-pro-6000"),
        ("attention_bf16_gb300.csv", "gb300"),
        ("attention_bf16_h200.csv", "h200-sxm"),
        ("attention_bf16_h800.csv", "h100-sxm"),
        ("gemm_bf16_h100_sxm.csv", "h100-sxm"),
    ],
)
def test_the_end_of_a_file_name_is_a_gpu(name, gpu):
    assert gpu_of_file(name) == gpu


def test_every_spec_can_name_a_file():
    for name in gpu_names():
        assert gpu_of_file(f"attention_bf16_{name.replace('-', '_')}.csv") == name


def test_a_file_of_an_unknown_gpu_is_refused_by_name(tmp_path, capsys):
    with pytest.raises(BadInput, match="attention_bf16_zx81"):
        gpu_of_file("attention_bf16_zx81.csv")
    path = tmp_path / "attention_bf16_zx81.csv"
    path.write_text(ATTENTION)
    print_calls(path)
    assert capsys.readouterr().out.startswith(path.name)


def test_dense_tables_of_other_gpus_are_found(tmp_path):
    (tmp_path / "gemm_bf16_b300.csv").write_text("m,n,k,seconds\n")
    assert [table.gpu for table in dense_tables(tmp_path)] == ["b300"]


def test_bounds_of_a_gpu_without_a_table_of_its_own_name_the_file(tmp_path, capsys):
    rows = [f"{m},{n},4096,1e-4" for m in (16, 64, 256, 1024, 4096) for n in range(1024, 9216, 1024)]
    (tmp_path / "gemm_bf16_b300.csv").write_text("\n".join(["m,n,k,seconds", *rows]))
    text = print_products(dense_tables(tmp_path), tmp_path, 1, ["model"])
    assert text.splitlines()[1].startswith("b300,dense,")
    assert text.splitlines()[1].endswith(",gemm_bf16_b300.csv")
    assert "judge rows: MAPE" in capsys.readouterr().out


def test_rows_of_attention_are_printed_by_kind_and_length(tmp_path, capsys):
    path = tmp_path / "attention_bf16_h100.csv"
    path.write_text(ATTENTION)
    print_calls(path)
    printed = capsys.readouterr().out
    assert "prefill      above 20 us" in printed
    assert "decode       below 20 us" in printed
    assert "attention_" in READERS


def test_errors_are_those_of_the_chosen_rows():
    ones = np.ones(4)
    found = Priced(
        kind=np.array(["a"] * 4),
        measured=np.array([1.0, 1.0, 1.0, 9.0]),
        seconds=np.array([1.1, 0.9, 1.0, 1.0]),
        low=0.95 * ones,
        high=1.05 * ones,
        fit=np.array([False] * 4),
    )
    e = errors(found, found.measured < 2.0)
    assert e.rows == 3
    assert e.mape == pytest.approx(100 * (0.1 + 0.1) / 3)
    assert e.median == pytest.approx(10.0)
    assert e.covered == pytest.approx(100.0)


def test_a_row_that_no_kernel_supports_is_one_line(tmp_path, capsys):
    path = tmp_path / "attention_bf16_h100.csv"
    path.write_text(ATTENTION.replace(",128,0,", ",640,0,"))
    print_calls(path)
    assert capsys.readouterr().out.count("\n") == 1

"""`validate --model`: what cannot be measured is one line, exit 2; a record's numbers make the table."""

import json
from pathlib import Path

import pytest

from prunecast.hardware import load_gpu
from prunecast.validation.torch_models import ModelCase
from prunecast.validation.torch_models import compare as comparing
from prunecast.workload.graph import Pass

US = {"dense compiled": 900.0, "sparse overlapped": 600.0}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--model", "bert-base"], "needs PyTorch with CUDA and a GPU"),
        (["--model", "no-such-model"], "model must be"),
        (["--model", "bert-base", "--workload", "prefill:1,prefill:2"], "measures one pass"),
        (["--model", "bert-base", "--blocks", "0"], "blocks must be at least 1"),
        (["--model", "bert-base", "--replay", "bundled"], "--model goes with --record alone"),
        (["--model", "bert-base", "--suite", "second"], "--suite second is of suites: --model goes with"),
        (["--model", "bert-base", "--part", "2/2"], "--part 2/2 is of suites: --model goes with"),
        (["--model", "bert-base", "--seconds", "9"], "--seconds 9.0 is of suites: --model goes with"),
        (["--model", "mixtral-8x7b"], "experts"),
        (["--model", "bert-base", "--pattern", "unstructured"], "patterns of tiles"),
        (["--model", "bert-base", "--sparsity", "1.5"], "sparsity must be"),
    ],
)
def test_what_cannot_be_measured(run, options, said, monkeypatch):
    monkeypatch.setattr(comparing, "_check_gpu", no_gpu)
    code, _, error = run("validate", *options)
    assert code == 2
    assert said in error
    assert error.count("\n") == 1


def no_gpu(gpu) -> None:
    from prunecast.errors import BadInput

    raise BadInput("measuring a model needs PyTorch with CUDA and a GPU, and torch sees no GPU")


def test_the_table_and_the_record(run, tmp_path, monkeypatch):
    monkeypatch.setattr(comparing, "_check_gpu", lambda gpu: None)
    monkeypatch.setattr(comparing, "_measure", lambda *_: {"us": US, "refused": {"dense graph": "why"}})
    out = tmp_path / "record.json"
    options = (
        "--model",
        "bert-small",
        "--workload",
        "prefill:128",
        "--engine",
        "model",
        "--record",
        str(out),
    )
    code, shown, _ = run("validate", *options)
    assert code == 0
    assert "sparse overlapped" in shown
    assert "1.50x" in shown
    assert "predicted: burst, launched in a graph, operands in DRAM\n" in shown
    assert "dense graph did not run: why" in shown
    found = comparing.beside(
        ModelCase("bert-small", Pass(1, 128)), {"us": US}, load_gpu("h200-sxm"), engine="model"
    )
    assert json.loads(Path(out).read_text())["rows"] == found.frame_rows()

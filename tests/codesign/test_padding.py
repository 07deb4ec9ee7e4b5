"""Padding of whole models whose number of tokens is no multiple of 8: predicted, or not mentioned."""

from dataclasses import replace

import pytest

from prunecast.codesign import predict
from prunecast.codesign.padding import padded_workload
from prunecast.text import milliseconds
from prunecast.workload.graph import parse_workload
from prunecast.workload.load import load_workload

OPTIONS = {"gpu": "h200-sxm", "engine": "model", "kernels": ["stspmm"], "crossovers": False}


@pytest.mark.parametrize(
    ("model", "workload", "runtime", "padded"),
    [
        ("bert-small", "batch:1x100", "engine", "batch:1x104/padded"),
        ("bert-small", "batch:3x129", "engine", "batch:3x136/padded"),
        ("bert-small", "batch:8x65", "engine", ""),
        ("bert-small", "batch:1x104", "engine", ""),
        ("bert-small", "batch:1x100", "torch", ""),
        ("gpt2", "prefill:300", "engine", "prefill:1x304/padded"),
        ("gpt2", "decode:12@100", "engine", "decode:16@100"),
        ("gpt2", "decode:1@100", "engine", ""),
        (
            "gpt2",
            "prefill:65=1,decode:8@100=3",
            "engine",
            "prefill:1x72/padded=1.000000,decode:8@100=3.000000",
        ),
        (
            "gpt2",
            "prefill:7,decode:8@9=2000000",
            "engine",
            "prefill:1x8/padded=1.000000,decode:8@9=2000000.000000",
        ),
        ("gpt2", "decode:4@100=1,decode:8@100=3", "engine", ""),
        ("vit-base-16", "batch:1", "engine", ""),
        ("whisper-tiny", "batch:1", "engine", ""),
        ("resnet18", "batch:1", "engine", ""),
    ],
)
def test_the_padded_workload_has_a_multiple_of_8_tokens_where_the_user_can_choose_it(
    model: str, workload: str, runtime: str, padded: str
) -> None:
    loaded = load_workload(
        model, parse_workload(workload), stated={"tokens": None, "batch": None}, runtime=runtime
    )
    assert padded_workload(loaded) == padded
    assert not padded_workload(replace(loaded, form="onnx"))  # a file that states its sizes
    if padded:
        passes = parse_workload(padded)
        assert all(run.columns % 8 == 0 for run in passes)
        assert sum(run.share for run in passes) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("workload", "padded_workload", "is_faster"),
    [
        ("batch:1x100", "batch:1x104/padded", True),
        ("batch:1x2047", "batch:1x2048/padded", True),
        ("batch:101x9", "batch:101x16/padded", False),  # 78 % more tokens
    ],
)
def test_a_remark_on_padding_is_the_time_of_the_padded_model_and_only_where_it_is_faster(
    workload: str, padded_workload: str, is_faster: bool
) -> None:
    table = predict("bert-small", workload=workload, runtime="engine", **OPTIONS)
    padded = predict("bert-small", workload=padded_workload, runtime="engine", **OPTIONS)
    own_s, padded_s = table.whole.best.seconds, padded.whole.best.seconds
    said = [remark for remark in table.whole.remarks if remark.startswith("padded to")]
    assert (padded_s <= 0.99 * own_s) == is_faster
    if is_faster:
        times = f"would need {milliseconds(padded_s)} ms instead of {milliseconds(own_s)}"
        assert said == [f"padded to --workload {padded_workload} the pass {times}"]
    else:
        assert not said
    assert not [remark for remark in padded.whole.remarks if remark.startswith("padded to")]

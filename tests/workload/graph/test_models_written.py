"""Predicted passes of whole models, written out: python -m tests.workload.graph.test_models_written

Whoever changes a rule of attention, experts, sums over GPUs, passes over memory, energy or memory sees here
which passes change and by how much. `models.json` may change only with such a rule or a fitted number. The
command above writes it anew.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from prunecast.codesign import predict

FILE = Path(__file__).with_name("models.json")
CASES: dict[str, dict[str, Any]] = {
    "encoder": {"weights": "bert-small", "workload": "prefill:4x128", "gpu": "a100-sxm4-80gb"},
    "padded encoder": {"weights": "bert-base", "workload": "prefill:8x256/padded", "gpu": "h100-sxm"},
    "prompt": {"weights": "llama-3.2-1b", "workload": "prefill:1x512", "gpu": "h200-sxm", "price": 3.6},
    "prompt in fp8": {"weights": "llama-3.2-1b", "workload": "prefill:2x300", "dtype": "fp8"},
    "token in fp8": {"weights": "qwen3-4b", "workload": "decode:16@1000", "dtype": "fp8", "scales": "token"},
    "token, engine": {"weights": "llama-3-8b", "workload": "decode:9@3000", "runtime": "engine"},
    "token on four GPUs": {"weights": "llama-3-70b", "workload": "decode:8@900", "tensor_parallel": 4},
    "experts": {"weights": "mixtral-8x7b", "workload": "decode:16@1024", "runtime": "engine"},
    "experts, prompt": {"weights": "qwen3-30b-a3b", "workload": "prefill:700", "routing": "balanced"},
    "experts in fp8": {"weights": "gpt-oss-20b", "workload": "decode:3@70", "dtype": "fp8"},
    "latent attention": {"weights": "deepseek-v3", "workload": "decode:4@2000", "tensor_parallel": 8},
    "window": {"weights": "gemma-3-1b", "workload": "prefill:1500", "gpu": "rtx-4090"},
    "speech": {"weights": "whisper-tiny", "workload": "decode:2@40", "gpu": "t4"},
    "images": {"weights": "vit-base-16", "workload": "batch:8", "gpu": "b200"},
    "two passes": {"weights": "gpt2", "workload": "prefill:64=1,decode:2@64=30", "gpu": "v100-sxm2-32gb"},
}
COMMON = {"gpu": "h200-sxm", "engine": "model", "kernels": "dense", "crossovers": False}


def leaves(document: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(document, dict | list):
        items = document.items() if isinstance(document, dict) else enumerate(document)
        for key, inner in items:
            yield from leaves(inner, f"{at} {key}".strip())
    else:
        yield at, float(f"{document:.7g}") if isinstance(document, float) else document


def predicted(case: str) -> dict[str, Any]:
    return dict(leaves(json.loads(predict(**{**COMMON, **CASES[case]}).to_json())["whole_model"]["phases"]))


@pytest.mark.parametrize("case", CASES)
def test_predicted_passes_change_only_on_purpose(case):
    found, written = predicted(case), json.loads(FILE.read_text())[case]
    assert found.keys() == written.keys()
    for name, value in written.items():
        is_number = isinstance(value, float)
        assert found[name] == (pytest.approx(value, rel=1e-5) if is_number else value), name


if __name__ == "__main__":
    FILE.write_text(json.dumps({case: predicted(case) for case in CASES}, indent=0) + "\n")

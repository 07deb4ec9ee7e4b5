"""The published JSON Schema is that of the code, and every command prints objects that it describes."""

import json
import runpy
from pathlib import Path

import numpy as np
import pytest
from pydantic import TypeAdapter

from prunecast.cli import documents, main
from prunecast.cli.documents import DOCUMENTS
from prunecast.validation.derive_spec import CalibratedSpec, Derived
from prunecast.validation.torch_models.compare import Beside, ModelValidation
from prunecast.validation.torch_models.predicted import Case
from prunecast.workload.graph.shapes import Pass

ROOT = Path(__file__).parents[2]
LLAMA = {"model_type": "llama", "hidden_size": 128, "num_hidden_layers": 1, "num_attention_heads": 2}
CONFIG = {**LLAMA, "intermediate_size": 256, "vocab_size": 160}
FAST = ("--engine", "model")
PRINTED = {
    "Predict": ("predict", "w.npy", *FAST),
    "Predict, whole model": ("predict", "config.json", "--workload", "prefill:64,decode:2@64", *FAST),
    "Compare": ("compare", "config.json", "--gpu", "h200-sxm", "--gpu", "t4", *FAST),
    "Explain": ("explain", "w.npy", *FAST),
    "Prune": ("prune", "w.npy", "--pattern", "tile-wise:64", "-o", "pruned"),
    "PruneToTime": ("prune", "config.json", "--latency", "101%", *FAST),
    "Search": ("search", "w.npy", "--latency", "101%", "--trials", "1", "--storage", "s.sqlite", *FAST),
    "Validate": ("validate", "--replay", "bundled", "--part", "1/400", *FAST),
    "Gpus": ("gpus",),
    "Gpu": ("gpus", "t4"),
    "GpuKernels": ("gpus", "t4", "--kernels"),
    "Patterns": ("patterns",),
    "Sweep": ("sweep", "-o", "s.sqlite", "--shape", "64x64x64", "--workers", "1"),
}
"""Type of the object, and after a comma a case -> the command that prints it."""


def check(kind, document):
    """An object is the type's: unknown fields would be lost in what is read, and missing ones are refused."""
    assert TypeAdapter(getattr(documents, f"{kind}Json")).validate_python(document) == document


@pytest.mark.parametrize("case", PRINTED)
def test_a_command_prints_what_the_schema_describes(case, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.save("w.npy", np.random.default_rng(0).standard_normal((128, 128)).astype(np.float32))
    Path("config.json").write_text(json.dumps(CONFIG))
    assert main([*PRINTED[case], "--json"]) == 0
    check(case.partition(",")[0], json.loads(capsys.readouterr().out))


def test_results_of_measurements_are_what_the_schema_describes():
    """No GPU: the results are built from invented measurements."""
    found = CalibratedSpec(base="t4", spec="own.toml", quantities={"sm_count": Derived(40, "read")})
    check("Calibrate", found.document())
    assert len(found.cells()) == len(found.frame_rows()) == 1
    case = Case("bert-base", Pass(8), 0.75, "tile-wise:128", None)
    sides = {
        "dense": Beside("dense", "compiled", 2.0, 2.2),
        "sparse": Beside("sparse", "compiled", 1.0, 1.1),
    }
    measured = {"refused": {"eager": "no memory"}}
    model = ModelValidation(case=case, gpu="t4", engine="model", **sides, measured=measured, predicted={})
    check("ValidateModel", model.document())
    assert model.notes == ("eager did not run: no memory",)
    assert [row["measured"] for row in model.cells()] == ["2.0 us", "1.0 us", "2.00x"]


def test_every_command_with_json_has_a_type():
    tested = {arguments[0] for arguments in PRINTED.values()}
    assert tested | {"calibrate"} == DOCUMENTS.keys()
    kinds = {kind.__name__.removesuffix("Json") for kinds in DOCUMENTS.values() for kind in kinds}
    assert kinds == {case.partition(",")[0] for case in PRINTED} | {"Calibrate", "ValidateModel"}


def test_the_published_schema_is_up_to_date():
    """`scripts/json_schema` writes it."""
    text = runpy.run_path(str(ROOT / "scripts" / "json_schema"))["schema_text"]()
    assert (ROOT / "docs" / "reference" / "json_schema.json").read_text(encoding="utf-8") == text

"""Every command prints objects that the published JSON Schema describes."""

import json
from pathlib import Path

import numpy as np
import pytest

from prunecast.cli import main
from prunecast.launch import USUAL
from prunecast.validation.derive_spec import CalibratedSpec, Derived
from prunecast.validation.torch_models.compare import ComparedTime, ModelValidation
from prunecast.validation.torch_models.predicted import ModelCase
from prunecast.workload.graph.shapes import Pass

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "reference" / "json_schema.json").read_text())
TYPES = {
    "string": lambda value: isinstance(value, str),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}
TEXTS = {"title", "description"}
KEYWORDS = TEXTS | {"type", "properties", "required", "items", "additionalProperties", "anyOf", "$ref"}
"""All keywords that the schema uses, so that `misfits` needs no others."""
LLAMA = {"model_type": "llama", "hidden_size": 128, "num_hidden_layers": 1, "num_attention_heads": 2}
CONFIG = {**LLAMA, "intermediate_size": 256, "vocab_size": 160}
FAST = ("--engine", "model")
PRINTED = {
    "Predict": ("predict", "w.npy", *FAST),
    "Predict, whole model": ("predict", "config.json", "--workload", "prefill:64,decode:2@64", *FAST),
    "Compare": ("compare", "config.json", "--gpu", "h200-sxm", "--gpu", "t4", *FAST),
    "Explain": ("explain", "w.npy", *FAST),
    "Explain, whole model": ("explain", "config.json", "--target", "re:down", "-n", "64", *FAST),
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


def misfits(value, schema, place="$"):
    """Yield the places of a value that a schema does not describe: wrong types, missing or unknown fields."""
    assert schema.keys() <= KEYWORDS
    if "$ref" in schema:
        yield from misfits(value, SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]], place)
    elif "anyOf" in schema:
        yield from min((list(misfits(value, one, place)) for one in schema["anyOf"]), key=len)
    elif "type" in schema and not TYPES[schema["type"]](value):
        yield f"{place}: {value!r:.40} is no {schema['type']}"
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from misfits(each, schema.get("items", {}), f"{place}[{number}]")
    elif isinstance(value, dict):
        fields = schema.get("properties", {})
        others = schema.get("additionalProperties", "properties" not in schema)
        yield from (f"{place}.{name} is missing" for name in schema.get("required", ()) if name not in value)
        yield from (f"{place}.{name} is not described" for name in value if not others and name not in fields)
        for name, each in value.items():
            yield from misfits(
                each, fields.get(name, others if isinstance(others, dict) else {}), f"{place}.{name}"
            )


def check(kind, document):
    assert list(misfits(document, SCHEMA["$defs"][f"{kind}Json"])) == []


@pytest.mark.parametrize(
    "changed",
    [{"gain": "0.1"}, {"gain": True}, {"gain": None}, {"unknown": 1.0}, {"seconds": ...}],
    ids=["text", "flag", "null", "unknown field", "missing field"],
)
def test_an_object_that_differs_from_its_description_is_noticed(changed):
    advice = {"change": "fewer tokens", "seconds": 1, "gain": 0.5}
    check("Advice", advice)
    other = {name: value for name, value in {**advice, **changed}.items() if value is not ...}
    (found,) = misfits(other, SCHEMA["$defs"]["AdviceJson"])
    assert found.startswith(f"$.{next(iter(changed))}")


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
    case = ModelCase("bert-base", Pass(8), 0.75, "tile-wise:128", None)
    sides = {
        "dense": ComparedTime("dense", "compiled", 2.0, 2.2),
        "sparse": ComparedTime("sparse", "compiled", 1.0, 1.1),
    }
    measured = {"refused": {"eager": "no memory"}}
    model = ModelValidation(case=case, gpu="t4", engine="model", **sides, measured=measured, predicted={})
    check("ValidateModel", model.document())
    assert model.document().items() >= USUAL.document().items()
    assert model.notes == ("eager did not run: no memory",)
    assert [row["measured"] for row in model.cells()] == ["2.0 us", "1.0 us", "2.00x"]


def test_every_command_with_json_is_described():
    tested = {arguments[0] for arguments in PRINTED.values()}
    assert tested | {"calibrate"} == SCHEMA["commands"].keys()
    kinds = {one["$ref"] for kinds in SCHEMA["commands"].values() for one in kinds}
    names = {case.partition(",")[0] for case in PRINTED} | {"Calibrate", "ValidateModel"}
    assert kinds == {f"#/$defs/{name}Json" for name in names}


def test_every_field_of_the_schema_that_is_required_is_described():
    for name, kind in SCHEMA["$defs"].items():
        assert set(kind["required"]) <= kind["properties"].keys(), name

"""No command writes over what it reads, nor twice the same file, by any option and any kind of link.

Options are enumerated from the commands themselves: one that is added takes part without a change here, and
one that names a path without a mark fails the first test.
"""

import itertools
import json
import os
import shutil
import subprocess
import sys
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, NamedTuple, get_args

import numpy as np
import onnx
import pytest
import typer
from safetensors.numpy import save_file

import prunecast
from prunecast.cli.app import COMMANDS, flattened
from prunecast.cli.guard import Reads, Writes, marks_of, option_name
from prunecast.codesign.tile_maps import TILES, WEIGHTS
from prunecast.errors import BadInput
from prunecast.files import OutputFile, OutputFolder, check_outputs
from prunecast.hardware.load import spec_text
from prunecast.patterns.sources.readers import RECIPE
from tests import onnx_files

TEXTS = {
    *(
        "TEXT",
        "SHARE",
        "HxW",
        "MxKxN",
        "TIME",
        "LAYER=SHARE",
        "PART[:SHARE]",
        "PATTERN",
        "LIST",
        "I/N",
        "WHERE",
        "S",
        "P",
        "NAME=X",
    ),
}
"""Placeholders in the help of texts that are no path."""
NAMES = {"kernel", "target", "ignore", "transpose"}
"""Parameters whose placeholder is NAME that name no file; `sweep --workload` too, which names a model."""


def parameters_of(command):
    return list(signature(flattened(command)).parameters.values())


def command_function(name):
    return getattr(
        sys.modules.get(f"prunecast.cli.{name}") or __import__(f"prunecast.cli.{name}", fromlist=[name]), name
    )


def unmarked(command):
    """Parameters that may name a path and tell the guard nothing."""
    found = []
    for parameter in parameters_of(command):
        plain, told = get_args(parameter.annotation)[:2]
        kinds = {plain, *get_args(plain)}
        text = kinds & {str, Path, list[str], list[Path]}
        is_name = told.metavar == "NAME" and (
            parameter.name in NAMES or (command.__name__, parameter.name) == ("sweep", "workload")
        )
        marks = [*marks_of(parameter, Reads), *marks_of(parameter, Writes)]
        if text and not marks and told.metavar not in TEXTS and not is_name:
            found.append(parameter.name)
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_every_path_has_a_mark(name):
    assert unmarked(command_function(name)) == []


def test_a_new_option_that_names_a_file_is_noticed():
    def new(
        *,
        log: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
        more: Annotated[list[str] | None, typer.Option(metavar="NAME")] = None,
        text: Annotated[str, typer.Option(metavar="TEXT")] = "",
    ):
        pass

    assert unmarked(new) == ["log", "more"]


class Pair(NamedTuple):
    """A command with one output and one other path, which are to be the same file."""

    command: str
    output: Parameter
    other: Parameter

    def __str__(self):
        return f"{self.command} {option_name(self.output)} {option_name(self.other)}"

    def place(self, parameter):
        """A value for an output, and a file that is written for it."""
        given = {each.name: None for each in parameters_of(command_function(self.command))}
        (mark,) = marks_of(parameter, Writes)
        output = next(iter(mark.outputs("it", "out", given | {"solutions": 1})))
        if isinstance(output, OutputFolder):
            return "out", Path("out") / output.names[0].replace("*", "it")
        name = f"file{''.join(output.suffixes[:1])}"
        return name, Path(name)

    def arguments(self, **values):
        """Words of the command line: these values, and something for what is required."""
        words, options = [self.command], []
        for parameter in parameters_of(command_function(self.command)):
            required = parameter.default is Parameter.empty
            usual = f"usual-{self.place(parameter)[0]}" if marks_of(parameter, Writes) else "some.npy"
            value = values.get(parameter.name, usual if required else None)
            if value is None:
                continue
            is_argument = type(get_args(parameter.annotation)[1]).__name__ == "ArgumentInfo"
            words, options = (
                ([*words, value], options)
                if is_argument
                else (words, [*options, option_name(parameter), value])
            )
        return [*words, *options]


def pairs(kind, choose):
    """All pairs of an output and another path of a kind, of all commands."""
    for name in COMMANDS:
        own = parameters_of(command_function(name))
        outputs = [each for each in own if marks_of(each, Writes)]
        others = [each for each in own if marks_of(each, kind)]
        yield from (Pair(name, *two) for two in choose(outputs, others))


READ = list(pairs(Reads, itertools.product))
WRITTEN = list(pairs(Writes, lambda outputs, _: itertools.combinations(outputs, 2)))


def test_there_are_pairs():
    assert {each.command for each in READ} == {*COMMANDS} - {"patterns"}
    assert {each.command for each in WRITTEN} == {"search", "sweep", "validate", "calibrate"}


LINKS = {
    "the same path": lambda file, link: None,
    "a symbolic link": lambda file, link: link.symlink_to(file.absolute()),
    "a hard link": lambda file, link: os.link(file, link),
}


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("pair", READ, ids=str)
def test_what_is_read_is_not_written(run, tmp_path, monkeypatch, pair, link):
    monkeypatch.chdir(tmp_path)
    value, file = pair.place(pair.output)
    Path("in").mkdir()
    read = Path("in") / file.name
    if link == "the same path":
        value, file = ("in" if file.parent.name else f"in/../in/{value}"), read
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(b"dear")
    LINKS[link](file, read)
    refuses(run, pair.arguments(**{pair.output.name: value, pair.other.name: str(read)}))


@pytest.mark.parametrize("link", [link for link in LINKS if link != "the same path"])
@pytest.mark.parametrize("pair", READ, ids=str)
def test_nor_through_a_link_at_the_output(run, tmp_path, monkeypatch, pair, link):
    monkeypatch.chdir(tmp_path)
    value, file = pair.place(pair.output)
    Path("in").mkdir()
    read = Path("in") / "dear.npy"
    read.write_bytes(b"dear")
    file.parent.mkdir(exist_ok=True)
    LINKS[link](read, file)
    refuses(run, pair.arguments(**{pair.output.name: value, pair.other.name: str(read)}))


@pytest.mark.parametrize("pair", WRITTEN, ids=str)
def test_no_file_is_written_twice(run, tmp_path, monkeypatch, pair):
    monkeypatch.chdir(tmp_path)
    (value, file), (other_value, other) = map(pair.place, (pair.output, pair.other))
    if other.parent == Path():
        other_value, other = f"other-{other_value}", Path(f"other-{other}")
    for place in (file, other):
        place.parent.mkdir(exist_ok=True)
    other.symlink_to(file.absolute())  # there is no such file yet
    refuses(run, pair.arguments(**{pair.output.name: value, pair.other.name: other_value}))


def refuses(run, arguments):
    before = snapshot(Path())
    code, out, err = run(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1), (arguments, err)
    assert "overwrite" in err or "write the same file" in err or "exists" in err, (arguments, err)
    assert snapshot(Path()) == before


def snapshot(folder):
    """Every path below a folder, with its content or target."""
    return {
        str(path): os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


@pytest.fixture
def checkpoint(tmp_path, monkeypatch):
    """A folder `k` whose index names `weights.safetensors`, with a configuration of no known model."""
    monkeypatch.chdir(tmp_path)
    Path("k").mkdir()
    rng = np.random.default_rng(0)
    save_file({"w": rng.standard_normal((128, 128)).astype(np.float16)}, "k/weights.safetensors")
    index = {"metadata": {}, "weight_map": {"w": "weights.safetensors"}}
    Path("k/model.safetensors.index.json").write_text(json.dumps(index))
    Path("k/config.json").write_text('{"model_type": "none"}')
    return Path("k")


@pytest.mark.parametrize("weights", ["k", "k/model.safetensors.index.json"])
@pytest.mark.parametrize(
    "command", [["prune", "--pattern", "2:4"], ["prune", "--latency", "90%"], ["search", "--latency", "90%"]]
)
@pytest.mark.parametrize("link", ["the folder", "a link to the folder", *LINKS])
def test_shards_are_read_though_only_the_index_names_them(run, checkpoint, weights, command, link):
    name, *options = command
    if link in LINKS:
        Path("o").mkdir()
        if link == "the same path":
            shutil.move("k/weights.safetensors", "o/weights.safetensors")
            Path("k/weights.safetensors").symlink_to("../o/weights.safetensors")
        LINKS[link](Path("k/weights.safetensors"), Path("o/weights.safetensors"))
    elif link != "the folder":
        Path("o").symlink_to("k")
    out = "k" if link == "the folder" else "o"
    refuses(run, [name, weights, "-o", out, *options])


@pytest.mark.parametrize("weights", ["k", "k/model.safetensors.index.json"])
@pytest.mark.parametrize("file", ["k/model.safetensors.index.json", "k/config.json", "link.json"])
def test_index_and_configuration_are_read(run, checkpoint, weights, file):
    Path("link.json").symlink_to("k/config.json")
    refuses(run, ["predict", weights, "-o", file])


def test_external_data_of_onnx_is_read(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = onnx_files.attention()
    for constant in model.graph.initializer:
        if len(constant.dims) == 2:
            onnx.external_data_helper.set_external_data(constant, WEIGHTS)
    onnx.external_data_helper.write_external_data_tensors(model, str(tmp_path))
    Path("m.onnx").write_bytes(model.SerializeToString())
    refuses(run, ["prune", "m.onnx", "-o", ".", "--pattern", "2:4"])
    Path("o").mkdir()
    os.link(WEIGHTS, f"o/{TILES}")
    refuses(run, ["search", "m.onnx", "-o", "o", "--latency", "90%"])
    refuses(run, ["search", "m.onnx", "--storage", f"o/{TILES}", "--latency", "90%"])


def test_every_folder_of_several_solutions_is_checked_first(run, checkpoint):
    words = ["--latency", "90%", "--solutions", "3"]
    shutil.move("k", "s-2")
    refuses(run, ["prune", "s-2/weights.safetensors", "-o", "s", *words])
    Path("t-3").write_bytes(b"no folder")
    before = snapshot(Path())
    code, _, err = run("prune", "s-2", "-o", "t", *words)
    assert (code, err) == (2, "prunecast: error: -o must be a folder, got the file t-3\n")
    assert snapshot(Path()) == before


def test_the_journal_of_a_database_is_an_output_too(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refuses(run, ["sweep", "-o", "s", "--pictures", "s-journal", "--shape", "64x64x64"])


def test_functions_refuse_as_commands_do(checkpoint):
    weights = {"w": np.ones((64, 64), np.float16)}
    before = snapshot(Path())
    with pytest.raises(BadInput, match=r"out would overwrite .*, which is read"):
        prunecast.prune("k", pattern="2:4", out="k")
    from prunecast.report.page import write_report

    with pytest.raises(BadInput, match=r"would overwrite .*, which is read"):
        write_report("k", "k/config.json", gpu="t4")
    assert snapshot(Path()) == before
    prunecast.prune(weights, pattern="2:4", out="k")  # arrays are no file
    assert {RECIPE, WEIGHTS} <= {path.name for path in checkpoint.iterdir()}


def test_an_output_may_be_called_like_a_known_name(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("w.npy", np.ones((64, 64), np.float16))
    for _ in range(2):  # the second one finds a folder called like the GPU
        assert run("prune", "w.npy", "-o", "h200-sxm", "--pattern", "2:4")[0] == 0
        prunecast.prune("w.npy", pattern="2:4", out="h200-sxm", gpu="h200-sxm")
    Path("bundled").mkdir()
    assert not Reads().files("bundled")
    Path("standard").touch()
    assert list(Reads().files("standard")) == ["standard"]
    spec = spec_text("t4")
    Path("a.toml").write_text(spec)
    os.link("a.toml", "b.json")
    code, _, err = run("gpus", "a.toml", "-o", "b.json")
    assert (code, "-o would overwrite b.json, which is read as a.toml" in err) == (2, True)
    assert Path("a.toml").read_text() == spec


@pytest.mark.parametrize(
    "command",
    [
        ("prune", "w.npy", "--pattern", "2:4", "-o"),
        ("prune", "w.npy", "--latency", "99%", "-o"),
        ("search", "w.npy", "--latency", "99%", "-o"),
        ("search", "w.npy", "--latency", "99%", "--storage"),
        ("export", "gpt2", "--format", "llmservingsim", "-o"),
        ("sweep", "--shape", "64x64x64", "-o", "s.sqlite", "--pictures"),
        ("predict", "w.npy", "-o"),
        ("report", "w.npy", "-o"),
        ("validate", "--replay", "bundled", "--report"),
        ("calibrate",),
    ],
)
@pytest.mark.parametrize("name", ["", "/"])
def test_an_output_has_a_name(run, tmp_path, monkeypatch, command, name):
    """An empty text is what a shell makes of an unset variable; nothing can be written next to the root."""
    monkeypatch.chdir(tmp_path)
    np.save("w.npy", np.ones((64, 64), np.float16))
    code, out, err = run(*command, name)
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert os.listdir() == ["w.npy"]


def test_inputs_are_listed_only_where_an_output_exists(tmp_path):
    def never():
        raise AssertionError
        yield

    new = [
        OutputFile(what="-o", path=tmp_path / "a"),
        OutputFolder(what="-p", path=tmp_path / "b", names=("c",)),
    ]
    check_outputs(new, never())
    (tmp_path / "a").touch()
    with pytest.raises(AssertionError):
        check_outputs(new, never())


@pytest.mark.parametrize("name", [".csv", ".json", "a.txt", "csv"])
def test_a_suffix_alone_is_no_name(tmp_path, name):
    """Python takes `.csv` for a name without suffix, so the form of the report would be lost."""
    with pytest.raises(BadInput, match=r"-o must name a \.json or \.csv file, got"):
        check_outputs([OutputFile(what="-o", path=tmp_path / name, suffixes=(".json", ".csv"))], ())
    check_outputs([OutputFile(what="-o", path=tmp_path / "a.b.csv", suffixes=(".json", ".csv"))], ())


@pytest.mark.parametrize("name", ["x.png", "page"])
def test_names_known_by_a_pattern_only(tmp_path, name):
    (tmp_path / "page").mkdir()
    folder = OutputFolder(what="--report", path=tmp_path / "page", names=("*.png",))
    check_outputs([folder, OutputFile(what="-o", path=tmp_path / "page" / "x.json")], ())
    place = tmp_path / "page" / name if name == "x.png" else tmp_path / name
    with pytest.raises(BadInput, match=r"--report and -o would write the same file|-o must be a file"):
        check_outputs([folder, OutputFile(what="-o", path=place)], ())


WATCH = """
import json, os, sys
from prunecast.cli import guard, main

opened, replaced, declared = [], [], {}

def watch(event, arguments):
    if event == "open" and isinstance(arguments[0], (str, bytes)):
        writes = bool(arguments[2] & (os.O_WRONLY | os.O_RDWR))
        opened.append((os.path.realpath(os.fsdecode(arguments[0])), writes))
    elif event == "sqlite3.connect":
        opened.append((os.path.realpath(os.fsdecode(arguments[0])), True))
    elif event in ("os.rename", "os.link", "os.symlink"):
        replaced.append(os.path.realpath(arguments[1]))

def declare(outputs, reads):
    paths = [each.path / name for each in outputs for name in getattr(each, "names", ("",))]
    paths += [each.path for each in outputs]
    declared["written"] = [os.path.realpath(path) for path in paths]
    declared["read"] = [os.path.realpath(path) for path in reads]

guard.check_outputs = declare
sys.addaudithook(watch)
found = []
for words in json.loads(sys.argv[1]):
    opened.clear(); replaced.clear()
    code = main(words)
    found.append({"code": code, "opened": [*opened], "replaced": [*replaced], **declared})
json.dump(found, open(sys.argv[2], "w"))
"""
"""Runs commands and records each file that Python opens or puts in a place, and what the guard was told."""


def test_commands_open_only_what_the_guard_knows(checkpoint, tmp_path):
    """The twin of the marks: the files that a command did open, as the interpreter sees them."""
    model = onnx_files.model(
        [onnx_files.node("MatMul", "x w", "y")], {"x": [8, 64]}, "y", {"w": onnx_files.weights(64, 64)}
    )
    onnx.external_data_helper.set_external_data(model.graph.initializer[0], "data.bin")
    onnx.external_data_helper.write_external_data_tensors(model, ".")
    Path("m.onnx").write_bytes(model.SerializeToString())
    Path("own.toml").write_text(spec_text("t4"))
    save_file({"w": np.ones(128, np.float32)}, "c.safetensors")
    raw = {
        "schema": 1,
        "date": "2026-11-20",
        "driver": "1",
        "commit": "c",
        "raw": {"latency": {"shared_cycles": 24.0, "l1_cycles": 40.0}},
    }
    Path("raw.json").write_text(json.dumps(raw))
    fast = ["--engine", "model", "--kernel", "dense"]
    commands = [
        ["predict", "k", "-n", "64", *fast, "--gpu", "own.toml", "-o", "a.json"],
        ["predict", "m.onnx", *fast, "-o", "b.json"],
        ["compare", "a.json", "a.json", "-o", "c.csv"],
        [
            "prune",
            "k/model.safetensors.index.json",
            "-o",
            "o",
            "--pattern",
            "2:4",
            "--calibrate",
            "c.safetensors",
        ],
        ["prune", "m.onnx", "-o", "o", "--pattern", "2:4"],
        ["gpus", "own.toml", "-o", "g.csv"],
        ["calibrate", "new.toml", "--raw", "raw.json", "--gpu", "own.toml", "-o", "d.json"],
        ["sweep", "-o", "s.sqlite", "--shape", "64x64x64", "--gpu", "own.toml", "--workers", "1", *fast],
    ]
    Path("watch.py").write_text(WATCH)
    words = [sys.executable, "watch.py", json.dumps(commands), "found.json"]
    subprocess.run(words, check=True, capture_output=True, timeout=1800)
    here = f"{tmp_path.resolve()}{os.sep}"
    for command, found in zip(commands, json.loads(Path("found.json").read_text()), strict=True):
        assert found["code"] == 0, command
        known = {*found["read"], *found["written"]}
        opened = [(path, writes) for path, writes in found["opened"] if path.startswith(here)]
        visible = [
            (path, writes) for path, writes in opened if ".prunecast-" not in path and not os.path.isdir(path)
        ]
        assert {path for path, writes in visible if not writes} <= known, command
        assert {path for path, writes in visible if writes} <= {*found["written"]}, command
        placed = {path for path in found["replaced"] if path.startswith(here) and ".prunecast-" not in path}
        assert placed, command
        assert placed <= {*found["written"]}, command
        assert any(not writes for _, writes in visible) or command[0] == "sweep"

"""Every bad input: exit code 2, exactly one line on stderr, nothing on stdout, nothing written."""

import pickle
from importlib import resources

import numpy as np
import pytest

FAST = ("--engine", "model", "--tokens", "64")


@pytest.fixture
def refused(run, tmp_path):
    """Runs a command that must be refused and returns its one line."""

    def refused(*arguments):
        before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        code, out, err = run(*arguments)
        assert (code, out, err.count("\n")) == (2, "", 1), err
        assert err.startswith("prunecast: error: ")
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
        return err.removeprefix("prunecast: error: ").rstrip("\n")

    return refused


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--tokens", "0"], "tokens must be at least 1, got 0"),
        (["-n", "-5"], "tokens must be at least 1, got -5"),
        (["-n", "many"], "--tokens"),
        (["-n", "many"], "got 'many'"),
        (["--sparsity=0.5,0.9"], "got '0.5,0.9'"),
        (["--sparsity", "1"], "sparsity must be in [0, 1), got 1.0"),
        (["--sparsity", "-0.1"], "sparsity must be in [0, 1), got -0.1"),
        (["--sparsity", "nan"], "sparsity must be a number, got nan"),
        (["--pattern", "tile-wise:0"], "got '0'"),
        (["--pattern", "block:256x64"], "block:256x64 needs a matrix of 256x64 or more, got 128x128"),
        (["--pattern", "tile-wize:128"], "did you mean tile-wise:128"),
        (["--gpu", "h200sxm"], "unknown GPU 'h200sxm'; nearest: h200-sxm"),
        (["--kernel", "stspm"], "got 'stspm'; nearest: stspmm"),
        (["--pattern", "2:4", "--kernel", "stspmm"], "kernel stspmm cannot run pattern 2:4"),
        (["--engine", "modell"], "nearest: model"),
        (["--state", "cold"], "state must be one of burst, sustained, got 'cold'"),
        (["--launch", "fast"], "launch must be one of graph, stream, got 'fast'"),
        (["--dtype", "int4"], "dtype must be one of fp16, bf16, fp32, tf32, fp8, int8, got 'int4'"),
        (["--scope", "all"], "scope must be one of layer, global, got 'all'"),
        (["--target", "c.weight"], "target 'c.weight' matches no tensor"),
        (["--target", "weight"], "re:weight finds 2 with it in their names"),
        (["--target", "re:["], "invalid regular expression"),
        (["--ignore", "c.weight"], "ignore 'c.weight' matches no tensor"),
        (["--ignore", "re:."], "ignore leaves out all 3 tensors"),
        (["--dtype", "fp8", "--kernel", "small-n"], "small-n on [bold]a[/].weight: dtype must be one of"),
        (["--transpose", "c.weight"], "transpose: target 'c.weight' matches no tensor"),
        (["--batch", "4"], "batch 4 is of images: convolutions need --input, matrices --tokens"),
        (["--conv", "im2col"], "conv im2col has no effect: no layer is a convolution"),
        (["--experts-per-token", "1"], "experts-per-token 1 has no effect: no layer has experts"),
        (
            ["--routing", "random"],
            "routing random has no effect: wanted a model by name or folder with experts",
        ),
        (["--scales", "token"], "scales token are of x in fp8: wanted dtype fp8, got none"),
        (["--kernel", "dense", "--sparsity", "0.9"], "sparsity 0.9 has no effect: the kernel dense runs all"),
        (["--kernel", "dense", "--pattern", "2:4"], "pattern 2:4 has no effect: the kernel dense runs all"),
        (["--sparsity", "75"], "sparsity must be in [0, 1), got 75.0; 75 % is 0.75"),
        (["--price", "3"], "price 3 is of a token or image of a whole model, got matrices"),
        (["--json", "--csv"], "--json and --csv exclude each other"),
        (["-o", "out.txt"], "-o must name a .json or .csv file, got out.txt"),
        (["-o", "no/out.json"], "-o must lie in a folder that exists, got no/out.json"),
        (["--min-speedup", "0"], "min-speedup must be above 0, got 0.0"),
        (["--no-such-option"], "No such option"),
        (["one", "more"], "unexpected extra argument"),
    ],
)
def test_options(refused, model, arguments, line):
    assert line in refused("predict", model, *FAST, *arguments)


def test_commands_without_what_they_need(refused):
    assert "WEIGHTS" in refused("predict")
    assert "No such command 'predikt'" in refused("predikt")
    assert "wanted -o FOLDER" in refused("prune", "model.safetensors")


def test_a_file_that_is_not_there(refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert refused("predict", "no.safetensors", *FAST) == "no.safetensors: no such file"


def test_a_standard_model_and_a_folder_are_told_where_to_go(refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = refused("prune", "bert-base", "-o", "out")
    assert "`prunecast predict bert-base`" in line
    assert (
        refused("predict", "bert-bse", *FAST) == "bert-bse: no such file; nearest standard model: bert-base"
    )
    line = refused("predict", "resnet", *FAST)
    assert line == "resnet: no such file; nearest standard models: resnet18, resnet34, resnet50"
    assert "no such file; standard models: resnet18," in refused("predict", "mymodel", *FAST)
    line = refused("predict", "bert-base", *FAST, "--transpose", "a")
    assert "wanted a file of weights, got the standard model bert-base" in line
    assert "not empty" in refused("predict", "", *FAST)
    (tmp_path / "pruned").mkdir()
    assert "a folder with a checkpoint in .safetensors, got one with no" in refused(
        "predict", "pruned", *FAST
    )
    (tmp_path / "pruned" / "weights.safetensors").touch()
    assert "weights.safetensors: not a safetensors file" in refused("predict", "pruned", *FAST)


def test_a_truncated_file(refused, model, tmp_path):
    whole = (tmp_path / model).read_bytes()
    (tmp_path / "cut.safetensors").write_bytes(whole[:-100])
    assert "cut off" in refused("predict", "cut.safetensors", *FAST)
    (tmp_path / "cut.safetensors").write_bytes(whole[:20])
    assert "cut off" in refused("predict", "cut.safetensors", *FAST)


def test_a_pickle(refused, tmp_path):
    (tmp_path / "model.pkl").write_bytes(pickle.dumps({"a": [1.0]}))
    assert "pickles can run code" in refused("predict", tmp_path / "model.pkl", *FAST)
    np.save(tmp_path / "object.npy", np.array([{}], dtype=object), allow_pickle=True)
    assert "pickled data is refused" in refused("predict", tmp_path / "object.npy", *FAST)


@pytest.mark.parametrize(
    ("array", "line"),
    [
        (np.ones(8, np.float32), "not 2-D (shape 8)"),
        (np.ones((2, 2, 2), np.float32), "not 2-D (shape 2x2x2)"),
        (np.array([[1.0, np.nan]], np.float32), "1 NaN or Inf among 2 weights"),
        (np.array([[1.0, 1e200]], np.float64), "1 weights above 3.4e+38 among 2 weights"),
        (np.ones((8, 8), np.int64), "dtype int64"),
        (np.ones((0, 8), np.float32), "0 elements"),
    ],
)
def test_arrays_that_are_no_weights(refused, tmp_path, array, line):
    np.save(tmp_path / "w.npy", array)
    assert line in refused("predict", tmp_path / "w.npy", *FAST)


@pytest.mark.parametrize(
    ("size", "line"), [("0x3", "an input of 0x3"), ("9999x9999", "at most 16777216 pix")]
)
def test_inputs_that_no_convolution_has(refused, tmp_path, size, line):
    np.save(tmp_path / "w.npy", np.ones((8, 8, 3, 3), np.float16))
    assert line in refused("predict", tmp_path / "w.npy", *FAST, "--input", size)


@pytest.mark.parametrize(
    "option",
    ["--tokens=5", "--gpu=l4", "--engine=model", "--solutions=3", "--batch=3", "--workload=batch:2"],
)
def test_prune_refuses_what_only_a_budget_needs(refused, model, option):
    name, value = option.split("=")
    assert f"{name} {value} needs a latency budget" in refused("prune", model, "-o", "out", option)


@pytest.mark.parametrize("option", ["--even", "--uneven"])
def test_a_flag_without_a_budget_is_named(refused, model, option):
    assert refused("prune", model, "-o", "out", option).startswith(f"{option} needs a latency budget")


@pytest.mark.parametrize(
    ("model", "arguments", "line"),
    [
        ("bert-small", ["--stride", "2"], "bert-small says the sizes of its inputs: leave out --stride"),
        ("bert-small", ["--padding", "0"], "bert-small says the sizes of its inputs: leave out --padding"),
        ("bert-small", ["--conv", "im2col"], "conv im2col has no effect: no layer is a convolution"),
        ("bert-small", ["--routing", "random"], "routing random has no effect"),
        ("bert-small", ["--ignore", "re:."], "ignore leaves out all that are customarily pruned"),
        ("llama-3.2-1b", ["--ignore", "re:layer"], "ignore leaves out all that are customarily pruned"),
        ("resnet18", ["-n", "300"], "resnet18 reads images, whose tokens are fixed: wanted batch:B, got 300"),
        ("resnet18", ["--workload", "prefill:512"], "reads images, whose tokens are fixed: wanted batch:B"),
        ("vit-base-16", ["-n", "300"], "vit-base-16 reads images, whose tokens are fixed: wanted batch:B"),
        (
            "c.npy",
            ["--stride", "2"],
            "stride and padding are of convolutions with --input, got 2 without one",
        ),
    ],
)
def test_settings_without_effect(refused, tmp_path, monkeypatch, model, arguments, line):
    """An answer to another question than the one that was asked is worse than none."""
    monkeypatch.chdir(tmp_path)
    np.save("c.npy", np.ones((64, 8, 3, 3), np.float16))
    assert line in refused("predict", model, "--engine", "model", *arguments)


def test_a_batch_that_nothing_has(refused, model):
    budget = ("-o", "out", "--latency", "60%", "--batch", "3")
    assert "batch 3 is of images: convolutions need --input" in refused("prune", model, *budget)
    assert "exclude each other" in refused("prune", "bert-small", *budget, "--workload", "batch:2")
    assert "exclude each other" in refused(
        "predict", "bert-small", "--batch", "3", "--workload", "batch:2", "--gpu", "h200-sxm"
    )
    assert "--scope global and a time" in refused("prune", model, *budget[:4], "--scope", "global")


def test_a_model_that_does_not_exist_is_named_whatever_else_is_wrong(refused):
    for options in ((), ("--batch", "4")):
        assert "bert-bse: no such file; nearest" in refused("predict", "bert-bse", *FAST[:2], *options)
    assert "nowhere.npz: no such file" in refused("predict", "nowhere.npz", *FAST[:2], "--batch", "4")


def test_a_model_without_weights_is_named(refused, tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    line = refused("prune", tmp_path / "config.json", "-o", tmp_path / "out")
    assert "config.json, a model with random weights" in line
    (tmp_path / "config.json").rename(tmp_path / "recipe.json")
    (tmp_path / "recipe.json").write_text('{"pattern": "tile-wise:128", "layers": []}')
    for command in (("predict",), ("export", "--format", "llmservingsim", "-o", tmp_path / "out")):
        line = refused(command[0], tmp_path, *command[1:], "--gpu", "h200-sxm")
        assert "has a recipe.json and no weights" in line


def test_a_speedup_below_one_is_no_target(refused, model):
    line = refused("prune", model, "--speedup", "0.7", "--engine", "model")
    assert "speedup must be from 1 (dense time over pruned time), got 0.7; 70% of the dense time" in line


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--sm", "3-1"), "sm must be numbers and ascending ranges such as 0-3, got '3-1'"),
        (("--max-slices", "0"), "--max-slices"),
    ],
)
def test_parts_of_a_timeline_that_are_none(refused, tmp_path, options, line):
    np.save(tmp_path / "w.npy", np.ones((64, 64), np.float16))
    assert line in refused("timeline", tmp_path / "w.npy", "-n", "64", "-o", tmp_path / "t.json", *options)


def test_a_line_names_the_tensor_and_stays_one_line(refused, tmp_path):
    np.savez(tmp_path / "w.npz", **{"two\nlines \x1b[31m": np.array([[np.inf]], np.float32)})
    line = refused("predict", tmp_path / "w.npz", *FAST)
    assert "two" in line
    assert "\x1b" not in line


def spec_text():
    return (resources.files("prunecast.hardware") / "data" / "h200-sxm.toml").read_text()


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ('value = 132\nunit = "count"\n', "value = 132\n", "sm_count: unit is missing"),
        ('unit = "count"', 'unit = "pieces"', "sm_count: unit must be 'count', got 'pieces'"),
        ('kind = "measured"\nsource', 'kind = "measured"\nsauce', "sm_count: source is missing"),
        ("[sm_count]", "[sm_counts]", "did you mean sm_count?"),
        ("schema = 1", "schema = [", "in TOML, but"),
    ],
)
def test_a_spec_file_that_leaves_something_out(refused, model, tmp_path, old, new, line):
    text = spec_text()
    assert old in text
    (tmp_path / "gpu.toml").write_text(text.replace(old, new, 1))
    assert line in refused("predict", model, *FAST, "--gpu", "gpu.toml")
    assert line in refused("gpus", "gpu.toml")


def test_a_gpu_whose_sm_holds_no_block(refused, model, tmp_path):
    start = spec_text().index("[shared_bytes_per_block]")
    section = spec_text()[start : spec_text().index("\n\n", start)]
    value = section.split("value = ")[1].split("\n")[0]
    small = section.replace(f"value = {value}", "value = 2048")
    (tmp_path / "gpu.toml").write_text(spec_text().replace(section, small))
    line = refused("predict", model, *FAST, "--gpu", "./gpu.toml")
    assert "fits on an SM of" in line
    assert "[bold]a[/].weight" in line or "b" in line


def test_compare(refused, model, tmp_path):
    assert "compare takes two files" in refused("compare", "a.json")
    assert "compare takes two files" in refused("compare", model, "--gpu", "t4")
    assert "a.json: wanted a file of `prunecast --json`, cannot read it: No such file" in refused(
        "compare", "a.json", "b.json"
    )
    (tmp_path / "a.json").write_text("{}")
    assert "JSON object with 'predictions'" in refused("compare", "a.json", "a.json")


def test_explain_and_prune(refused, model, tmp_path):
    assert "explain takes one layer, got 2" in refused("explain", model, *FAST)
    passes = ("--target", "re:bold", "--workload", "prefill:64,decode:4@64")
    assert "wanted a target, and one pass" in refused("explain", model, "--engine", "model", *passes)
    assert "kernel must be one of" in refused("explain", model, *FAST, "--kernel", "cublas")
    assert "must lie in a folder that exists" in refused("prune", model, "-o", "no/such")
    assert "-o must be a folder" in refused("prune", model, "-o", model)
    assert "a folder with a name" in refused(
        "prune", model, "-o", ".", "--latency", "90%", "--solutions", "2"
    )
    assert "2:4 only has sparsity 0.5" in refused(
        "prune", model, "-o", "out", "--pattern", "2:4", "--sparsity", "0.9"
    )
    assert "--cap a=0.5 needs a latency budget" in refused("prune", model, "-o", "out", "--cap", "a=0.5")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "--shape 4096x4096x2048) or a --workload"),
        (["--shape", "128x128"], "--shape must be like"),
        (["--shape", "128x128x64", "--workers", "0"], "workers must be from 1 to 4096, got 0"),
        (["--shape", "128x128x64", "--workers", "9" * 40], "workers must be from 1 to 4096, got 9"),
        (["--shape", "128x128x64", "--parquet", "weights.npy"], "--parquet must name a .parquet file"),
        (["--shape", "128x128x64", "--executor", "threads"], "executor must be processes or dask://"),
        (
            ["--shape", "128x128x64", "--parquet", "no/p.parquet"],
            "--parquet must lie in a folder that exists",
        ),
        (["--shape", "128x128x64", "--pictures", "no/p"], "--pictures must lie in a folder that exists"),
    ],
)
def test_sweep_begins_no_file_of_results(refused, tmp_path, monkeypatch, arguments, line):
    monkeypatch.chdir(tmp_path)
    assert line in refused("sweep", "-o", "s.sqlite", *arguments)


def test_gpus(refused):
    assert "nearest: a10" in refused("gpus", "a1000")


def test_a_timeline_of_several_layers_says_how_many(refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    np.savez("two.npz", a=rng.random((64, 64), np.float32), b=rng.random((64, 64), np.float32))
    line = refused("timeline", "two.npz", "-n", "64")
    assert line.startswith("timeline takes one layer and a kernel that runs it, got 2 layers")

"""Structure-aware fuzzing of all that the command line reads: python -m tests.hardening.fuzz --inputs 100000

Each input is a good file of one kind with some of its fields or bytes replaced; of the kind `options`, a good
file and options with values of any kind, outputs of the name of inputs among them. A command that reads it
must end with exit code 0, 1 or 2 within ten seconds and two gigabytes, with at most 500 characters on each
line of stderr, and must leave what it reads as it was.

What breaks a rule is kept in `--keep`, called by its seed; `--seed S --inputs 1` makes it again.
"""

import argparse
import contextlib
import io
import json
import os
import random
import resource
import struct
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from prunecast.cli import main
from prunecast.hardware.load import spec_text
from tests import onnx_files

__all__ = ["KINDS", "Broken", "compile_engines", "run_inputs"]

MOST_SECONDS, MOST_BYTES, LONGEST_LINE = 10.0, 2 * 2**30, 500
MOST_ADDRESSES = 8 * 2**30
"""Of a long run, so that an input that asks for all memory harms nobody."""
NASTY: tuple[Any, ...] = (
    *(
        None,
        True,
        "",
        "a",
        "\x1b[31m",
        "\n",
        "é\udcff",
        "x" * 5000,
        -1,
        0,
        1,
        2,
        3,
        7,
        2**31,
        2**53,
        2**63,
        10**30,
    ),
    *(-0.5, 1e-300, 1e308, 0.5, [], [[]], {}, [1], [-1, 2], [2**40, 2**40], {"a": 1}, [1] * 100),
)
FAST = ("--engine", "model", "-n", "64", "--no-crossovers", "--kernel", "stspmm")
OPTIONS: dict[str, tuple[str, ...]] = {
    "spec": ("gpus", "FILE"),
    "compare": ("compare", "FILE", "good.json"),
    "raw": ("calibrate", "new.toml", "--raw", "FILE"),
    "record": ("validate", "--replay", "FILE", "--engine", "model"),
    "suite": ("validate", "--suite", "FILE", "--record", "no/such.jsonl"),
    "config": (
        "predict",
        "FILE",
        "--engine",
        "model",
        "--no-crossovers",
        "--kernel",
        "small-n",
        "--workload",
        "decode:2@9",
    ),
    "prune": ("prune", "FILE", "--latency", "100%", "-n", "8", "--engine", "model", "-o", "out"),
}

VALUES = (
    "",
    "-1",
    "0",
    "1",
    "0.5",
    "1e999",
    "nan",
    "x",
    "\x00",
    "a,b",
    "9" * 40,
    "re:(",
    "../x",
    "FILE",
)
"""Values of any option; FILE is the input."""
COMMAND_OPTIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "predict": {
        "--engine": ("model",),
        "--kernel": ("stspmm", "dense", "csr", "2:4", "small-n"),
        "--pattern": ("tile-wise:32", "atp:32:guided", "dense-block:2:guided", "2:4", "tvw:32", "atp:0"),
        "--sparsity": ("0.9", "1"),
        "--gpu": ("t4", "gtx-1080-ti", "b200"),
        "--dtype": ("fp16", "fp32", "fp8"),
        "--state": ("sustained",),
        "--launch": ("stream",),
        "--l2": ("warm",),
        "--tokens": ("64", "65537"),
        "--batch": ("2",),
        "--target": ("re:.*", "a"),
        "--ignore": ("re:.*",),
        "--min-speedup": ("1.5",),
        "--csv": (),
        "--json": (),
        "--output": ("new.json", "new.csv"),
    },
    "prune": {
        "--pattern": ("tile-wise:32", "unstructured", "2:4"),
        "--sparsity": ("0.9",),
        "--latency": ("90%", "1us", "1%"),
        "--tokens": ("64",),
        "--gpu": ("t4",),
        "--engine": ("model",),
        "--solutions": ("2",),
        "--calibrate": (),
        "--output": ("out", "."),
    },
    "compare": {"--output": ("new.json",), "--csv": (), "--json": ()},
    "explain": {
        "--engine": ("model",),
        "--kernel": ("stspmm",),
        "--gpu": ("t4",),
        "--tokens": ("64",),
        "--pattern": ("2:4", "tile-wise:32"),
        "--state": ("sustained",),
        "--launch": ("stream",),
        "--csv": (),
        "--output": ("new.json",),
    },
    "timeline": {
        "--kernel": ("dense", "small-n"),
        "--gpu": ("t4",),
        "--tokens": ("64",),
        "--state": ("sustained",),
        "--sm": ("0-3", "5,0", "3-1", "200"),
        "--first-waves": ("2",),
        "--max-slices": ("10", "100000"),
        "--output": ("new.json.gz", "new.json"),
    },
    "sweep": {
        "--shape": ("64x64x64", "64x64"),
        "--pattern": ("tile-wise:32", "unstructured"),
        "--as-important-as": ("tile-wise:32", "2:4"),
        "--sparsity": ("0.9",),
        "--output": ("new.sqlite",),
        "--parquet": ("new.parquet",),
        "--workers": ("1",),
    },
}
"""Command -> options with their good values."""

Document = Any
Draw = random.Random


class Kind(NamedTuple):
    """One kind of file."""

    suffix: str
    command: str
    make: Callable[[Draw], bytes]


class Broken(NamedTuple):
    """An input that broke a rule."""

    kind: str
    seed: int
    why: str


def changed(draw: Draw, document: Document, times: int) -> Document:
    """A JSON document with some leaves or branches replaced, dropped or doubled."""
    for _ in range(times):
        places = list(_places(document))
        if not places:
            return deepcopy(draw.choice(NASTY))
        parent, key = draw.choice(places)
        what = draw.random()
        if what < 0.15:
            del parent[key]
        elif what < 0.25 and isinstance(parent, dict):
            parent[str(draw.choice(NASTY))] = deepcopy(parent[key])
        elif what < 0.35 and isinstance(parent[key], int | float):
            parent[key] *= draw.choice((-1, 0.5, 2, 1000, 10**9))
        else:
            parent[key] = deepcopy(draw.choice(NASTY))
    return document


def _places(document: Document) -> list[tuple[Any, Any]]:
    """Parent and key of every branch and leaf."""
    found: list[tuple[Any, Any]] = []
    keys = (
        document if isinstance(document, dict) else range(len(document)) if isinstance(document, list) else ()
    )
    for key in keys:
        found.append((document, key))
        found += _places(document[key])
    return found


def _json(draw: Draw, document: Document) -> bytes:
    return json.dumps(changed(draw, document, draw.randint(1, 3))).encode("utf-8", "surrogatepass")


def _bytes(draw: Draw, content: bytes) -> bytes:
    """Some bytes flipped, cut out, doubled or put in."""
    data = bytearray(content)
    for _ in range(draw.randint(1, 6)):
        place, length = draw.randrange(len(data) + 1), draw.randint(1, 16)
        what = draw.randrange(4)
        if what == 0 and place < len(data):
            data[place] = draw.randrange(256)
        elif what == 1:
            del data[place : place + length]
        elif what == 2:
            data[place:place] = data[place : place + length]
        else:
            data[place:place] = draw.choice((b"9" * 30, b"-", b"\0", b"\xff", b"1e999", b'"', b"[" * 50))
    return bytes(data)


def _weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float16)


def _safetensors(draw: Draw) -> bytes:
    sizes = np.array([draw.choice((64, 64, -1, 2**40)), 64])
    tensors = {
        "a.weight": ("F16", _weights(64, 64)),
        "q.compressed": ("F16", _weights(2048)),
        "q.bitmask": ("U8", np.full((64, 8), 0x0F, np.uint8)),
        "q.shape": ("I64", sizes),
        "experts.up": ("F16", _weights(4, 32, 32)),
        "f8": ("F8_E4M3", np.ones((64, 64), np.uint8)),
        "f8_scale": ("F32", np.ones((4, 4), np.float32)),
    }
    header: Document = {}
    place = 0
    for name, (dtype, array) in tensors.items():
        end = place + array.nbytes
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [place, end]}
        place = end
    # Half of the draws keep the places of the data, without which no tensor is reached
    if draw.random() < 0.5:
        text = _json(draw, header)
    else:
        text = json.dumps(header).encode()
        for name in draw.sample(list(tensors), 2):
            text = text.replace(
                name.encode(), draw.choice((b"a.bias", b"norm", b"c_attn.weight", b"\\ud800"))
            )
    if draw.random() < 0.3:
        text = _bytes(draw, text)
    data = b"".join(array.tobytes() for _, array in tensors.values())
    return struct.pack("<Q", len(text)) + text + data


def _torch(draw: Draw) -> bytes:
    import torch

    made = io.BytesIO()
    tensors: Document = {"a.weight": torch.zeros(64, 64), "a.bias": torch.zeros(64), "step": 3}
    wide = torch.zeros(1).expand(2**20, 2**20)
    tensors["odd"] = draw.choice((wide, torch.zeros(3, 0), torch.eye(4).to_sparse(), "text", [1]))
    torch.save({"model": tensors} if draw.random() < 0.3 else tensors, made)
    return _bytes(draw, made.getvalue())


def _npy(draw: Draw) -> bytes:
    made = io.BytesIO()
    np.save(made, _weights(64, 64))
    return _bytes(draw, made.getvalue())


def _good_npy(draw: Draw) -> bytes:
    made = io.BytesIO()
    np.save(made, _weights(64, draw.choice((64, 128))))
    return made.getvalue()


def _npz(draw: Draw) -> bytes:
    made = io.BytesIO()
    if draw.random() < 0.5:
        np.savez_compressed(made, a=_weights(64, 64), b=_weights(8))
    else:
        parts = {"format": b"csr", "shape": [64, 64], "data": np.ones(3), "indices": [0, 1, 2]}
        parts |= {"indptr": [0] * 64 + [3]}
        name = draw.choice(list(parts))
        parts[name] = draw.choice((-1, [2**40, 2], "text", np.ones((2, 2)), 1.5, parts[name]))
        np.savez(made, **parts)
    return _bytes(draw, made.getvalue()) if draw.random() < 0.5 else made.getvalue()


def _mtx(draw: Draw) -> bytes:
    words = [b"%%MatrixMarket matrix coordinate real general\n64 64 3\n1 1 0.5\n64 64 2\n3 4 -1\n"]
    words.append(b"%%MatrixMarket matrix array real symmetric\n3 3\n" + b"1.5 " * 6)
    return _bytes(draw, draw.choice(words))


def _smtx(draw: Draw) -> bytes:
    return _bytes(draw, b"4, 64, 5\n0 2 3 3 5\n0 5 2 1 63\n")


def _onnx(draw: Draw) -> bytes:
    model = draw.choice((onnx_files.attention, onnx_files.gelu_mlp, onnx_files.conv_net))()
    for _ in range(draw.randint(1, 4)):
        node, constant = draw.choice(model.graph.node), draw.choice(model.graph.initializer)
        what = draw.randrange(7)
        if what == 0:
            node.op_type = draw.choice(("MatMul", "Gemm", "Conv", "Reshape", "Loop", "Split", ""))
        elif what == 1 and node.input:
            node.input[draw.randrange(len(node.input))] = draw.choice(("x", "nothing", "", constant.name))
        elif what == 2 and constant.dims:
            constant.dims[draw.randrange(len(constant.dims))] = draw.choice((0, -1, 1, 2**31, 2**62))
        elif what == 3:
            constant.data_type = draw.randrange(24)
        elif what == 4 and node.attribute:
            node.attribute[0].ints[:] = [draw.choice((0, -1, 2, 2**40)) for _ in range(draw.randrange(5))]
        elif what == 5:
            for size in model.graph.input[0].type.tensor_type.shape.dim:
                size.dim_value = draw.choice((0, 1, 64, 2**20, 2**40, -5))
        else:
            del model.graph.node[draw.randrange(len(model.graph.node))]
    content = model.SerializeToString()
    return _bytes(draw, content) if draw.random() < 0.3 else content


def _spec(draw: Draw) -> bytes:
    document = changed(draw, tomllib.loads(spec_text("h200-sxm")), draw.randint(1, 2))
    if not isinstance(document, dict) or draw.random() < 0.2:
        return _bytes(draw, spec_text("h200-sxm").encode())
    return "\n".join(_toml(name, value) for name, value in document.items()).encode("utf-8", "replace")


def _toml(name: str, value: Any) -> str:
    if isinstance(value, dict):
        return f"[{json.dumps(name)}]\n" + "\n".join(_toml(key, inner) for key, inner in value.items())
    return f"{json.dumps(name)} = {json.dumps(value)}"


def _compare(draw: Draw) -> bytes:
    return _json(draw, _good_predictions())


def _good_predictions() -> Document:
    row = {"layer": "a", "kernel": "dense", "n": 1, "pattern": "dense", "seconds": 1e-6}
    return {"schema_version": 1, "gpu": "g", "predictions": [row, {**row, "layer": "b"}]}


def _raw(draw: Draw) -> bytes:
    groups = {
        "latency": {"shared_cycles": 24.0, "l1_cycles": 40.0, "l2_cycles_8_mib": 200.0, "dram_cycles": 600.0},
        "bandwidth": {"read_1_mib": 1e13, "read_512_mib": 4e12, "copy_all_512_mib": 3e12},
        "kept": {"kept_1_bytes_of_one_share": 1.0, "kept_2_bytes_of_one_share": 0.1},
    }
    document = {"schema": 1, "date": "2026-11-20", "driver": "580", "commit": "c", "raw": groups}
    return _json(draw, document)


@cache
def _good_record() -> bytes:
    from prunecast.validation.records import read_runs
    from prunecast.validation.validate import bundled_records
    from tests.naive.record_files import write_run

    run = read_runs(bundled_records()[0])[0]
    write_run(Path("record.csv"), run.header, run.rows[:3])
    return Path("record.csv").read_bytes()


def _record(draw: Draw) -> bytes:
    return _bytes(draw, _good_record())


def _config(draw: Draw) -> bytes:
    sizes = {"hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    more = {"intermediate_size": 512, "vocab_size": 320, "num_local_experts": 4, "sliding_window": 64}
    kind = draw.choice(("llama", "mixtral", "gemma3_text", "bert", "phi3", "qwen3_moe"))
    return _json(draw, {"model_type": kind, **sizes, **more})


def _suite(draw: Draw) -> bytes:
    text = b'schema = 1\nname = "s"\n[[case]]\nname = "c"\nm = 64\nk = 64\nn = 64\npattern = "dense"\n'
    return _bytes(draw, text)


KINDS: dict[str, Kind] = {
    "safetensors": Kind(".safetensors", "", _safetensors),
    "safetensors, pruned": Kind(".safetensors", "prune", _safetensors),
    **({"pt": Kind(".pt", "", _torch)} if find_spec("torch") else {}),
    "npy": Kind(".npy", "", _npy),
    "npz": Kind(".npz", "", _npz),
    "mtx": Kind(".mtx", "", _mtx),
    "smtx": Kind(".smtx", "", _smtx),
    "onnx": Kind(".onnx", "", _onnx),
    "onnx, pruned": Kind(".onnx", "prune", _onnx),
    "spec": Kind(".toml", "spec", _spec),
    "compare": Kind(".json", "compare", _compare),
    "raw": Kind(".json", "raw", _raw),
    "record": Kind(".csv", "record", _record),
    "suite": Kind(".toml", "suite", _suite),
    "config": Kind("config.json", "config", _config),
    "options": Kind(".npy", "options", _good_npy),
}


def _drawn_command(draw: Draw) -> tuple[str, ...]:
    """A command with two to six of its options, of which some have good values."""
    command = draw.choice(list(COMMAND_OPTIONS))
    words = [command] if command == "sweep" else [command, "good.json" if command == "compare" else "FILE"]
    if command == "sweep":
        words += ["--workers", "1", "--shape", "64x64x64"]
    options = COMMAND_OPTIONS[command]
    if "--engine" in options and draw.random() < 0.9:
        words += ["--engine", "model"]
    if draw.random() < 0.5:
        words += ["--output", draw.choice((*options.get("--output", ()), "FILE", words[1]))]
    for name in draw.sample(list(options), min(draw.randint(1, 5), len(options))):
        good = options[name]
        words += (
            [name]
            if name == "--json"
            else [name, draw.choice(good if good and draw.random() < 0.6 else VALUES)]
        )
    return tuple(words)


def run_input(kind: str, seed: int) -> Broken | None:
    """Make one input in this folder, read it, and say what rule it broke."""
    made, draw = KINDS[kind], random.Random(f"{kind} {seed}")
    file = Path(made.suffix if kind == "config" else f"input{made.suffix}")
    file.write_bytes(made.make(draw))
    Path("new.toml").unlink(missing_ok=True)
    drawn = _drawn_command(draw) if made.command == "options" else None
    wanted = drawn or OPTIONS.get(made.command) or ("predict", "FILE", *FAST)
    read = {path: path.read_bytes() for path in (file, Path("good.json"))}
    out, err = io.StringIO(), io.StringIO()
    before, begun = _peak_bytes(), time.process_time()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(file) if word == "FILE" else word for word in wanted])
    took = time.process_time() - begun
    longest = max(map(len, err.getvalue().split("\n")))
    memory = _peak_bytes()
    rules = (
        (code not in (0, 1, 2), f"exit code {code} of {wanted}: {err.getvalue():.300}"),
        (took > MOST_SECONDS, f"{took:.0f} s"),
        (memory > max(MOST_BYTES, before), f"{memory / 2**30:.1f} GiB"),
        (longest > LONGEST_LINE, f"a line of {longest} characters"),
        (any(path.read_bytes() != content for path, content in read.items()), f"wrote its input: {wanted}"),
        ("\x1b" in out.getvalue() + err.getvalue(), "an escape sequence"),
    )
    return next((Broken(kind, seed, why) for broken, why in rules if broken), None)


def _peak_bytes() -> int:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def run_inputs(
    seeds: Iterable[int], kinds: tuple[str, ...] = tuple(KINDS), keep: Path | None = None
) -> list[Broken]:
    """Every seed with one kind after the other, in a folder of its own."""
    found = []
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            Path("good.json").write_text(json.dumps(_good_predictions()))
            for seed in seeds:
                kind = kinds[seed % len(kinds)]
                broken = run_input(kind, seed)
                if broken is None:
                    continue
                found.append(broken)
                if keep is not None:
                    keep.mkdir(exist_ok=True)
                    suffix = KINDS[kind].suffix
                    file = Path(suffix if kind == "config" else f"input{suffix}")
                    (keep / f"{kind}-{seed}{file.suffix}").write_bytes(file.read_bytes())
        finally:
            os.chdir(before)
    return found


def _main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no input after so many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=list(KINDS), action="append")
    parser.add_argument("--keep", type=Path, default=None)
    asked = parser.parse_args()
    keep = None if asked.keep is None else asked.keep.absolute()
    kinds = tuple(asked.kind or KINDS)
    with tempfile.TemporaryDirectory() as folder:
        compile_engines(Path(folder))
    begun: list[int] = []
    found = run_inputs(_until(asked, begun), kinds, keep)
    for broken in found:
        print(f"{broken.kind} {broken.seed}: {broken.why}")
    print(f"{len(begun)} inputs, {len(found)} broke a rule")
    return int(bool(found))


def compile_engines(folder: Path) -> None:
    """Run both engines once on files in a folder: the time of an input is not to count their compilation."""
    weights = folder / "w.npy"
    np.save(weights, _weights(64, 64))
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        assert main(["predict", str(weights), "--engine", "model", "-n", "64", "--no-crossovers"]) == 0
        assert main(["timeline", str(weights), "-n", "64", "--output", str(folder / "trace.json")]) == 0


def _until(asked: argparse.Namespace, begun: list[int]) -> Iterator[int]:
    """Seeds as long as there is time; each is put into `begun`."""
    end = time.monotonic() + asked.seconds
    for seed in range(asked.seed, asked.seed + asked.inputs):
        if time.monotonic() > end:
            return
        begun.append(seed)
        yield seed


if __name__ == "__main__":
    os.environ["PRUNECAST_PROGRESS"] = "off"
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    soft = MOST_ADDRESSES if hard == resource.RLIM_INFINITY else min(MOST_ADDRESSES, hard)
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    raise SystemExit(_main())

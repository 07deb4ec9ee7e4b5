"""Every number that a command prints for people is the one of its JSON, in the unit of its heading.

A printed number may differ from the stored one by half of its last digit.
"""

import json
import re
import sys
from decimal import Decimal
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import save_file

from prunecast.cli.explain import BAR_WIDTH
from prunecast.cli.prune import _remarks, _removed_lines, _yardsticks
from prunecast.codesign.sweep import SweepTable

FAST = ("--engine", "model", "--tokens", "4096")


@pytest.fixture
def weights(tmp_path, monkeypatch):
    """Two layers of different sizes."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    sizes = {"a.weight": (1024, 512), "b.weight": (256, 256)}
    save_file(
        {name: rng.standard_normal(size).astype(np.float16) for name, size in sizes.items()}, "w.safetensors"
    )
    return "w.safetensors"


@pytest.fixture
def both(run):
    """Run a command once; return its JSON and the lines that it prints for people."""

    def both(*words):
        code, out, _ = run(*words, "-o", "out.json") if words[0] in FILE_COMMANDS else run(*words)
        assert code == 0
        with open("out.json", encoding="utf-8") as file:
            return json.load(file), out.splitlines()

    return both


FILE_COMMANDS = ("predict", "explain", "compare", "gpus")
"""Commands whose `-o` is a file in the form of their JSON."""


def assert_shows(text, value):
    """A number as text is the value, rounded at the last digit of the text."""
    number = Decimal(text.replace(",", "").rstrip("x%"))
    half = Decimal(5).scaleb(number.as_tuple().exponent - 1)
    assert abs(float(number) - value) <= float(half) * (1 + 1e-6), (text, value)


def numbers(line):
    """Numbers of a line, as texts."""
    return re.findall(r"(?<![\w.])-?\d[\d,]*\.?\d*(?:e-?\d+)?", line)


def only(lines, start):
    """The line that begins with a text."""
    (line,) = (line for line in lines if line.startswith(start))
    return line


def rows_below(lines, heading):
    """Cells of each line of the table whose heading line begins with `heading`, by name of the column."""
    first = next(place for place, line in enumerate(lines) if line.strip().startswith(heading))
    names = re.split(r"\s{2,}", lines[first].strip())
    found = []
    for line in lines[first + 1 :]:
        cells = re.split(r"\s{2,}", line.strip())
        if len(cells) != len(names):
            break
        found.append(dict(zip(names, cells, strict=True)))
    return found


def test_explain(both, weights):
    document, lines = both("explain", weights, "--target", "a.weight", "-n", "256")
    (row,) = document["predictions"]
    assert lines[0].startswith("a.weight: 1024 x 512, 256 tokens, fp16, tile-wise on tile-wise:128, ")
    assert_shows(re.search(r"([\d.]+)% removed", lines[0])[1], 100 * row["sparsity"])
    time, low, high = numbers(lines[1])[:3]
    for text, name in ((time, "seconds"), (low, "seconds_low"), (high, "seconds_high")):
        assert_shows(text, 1e6 * row[name])
    assert_shows(re.search(r"([\d.]+)x over dense", lines[1])[1], row["speedup_over_dense"])
    assert lines[2] == f"{document['verdict']}."
    facts = [fact for section in document["sections"] for fact in section["facts"]]
    most = max(fact["value"] for fact in facts if fact["name"].startswith("SMs with "))
    for fact in facts:
        found = (re.fullmatch(rf"  {re.escape(fact['name'])} +(\S+) ?(.*)", line) for line in lines)
        text, unit = next(
            match for match in found if match and (match[1][-1].isdigit() or match[1] == fact["value"])
        ).groups()
        if isinstance(fact["value"], str):
            assert text == fact["value"]
            continue
        assert_shows(text, fact["value"])
        is_bar = fact["name"].startswith("SMs with ")
        bar = "#" * round(BAR_WIDTH * fact["value"] / most) if is_bar else ""
        assert unit.strip() == (bar if fact["unit"] == "count" else fact["unit"])
    advice = lines[lines.index("What would help") + 1 :]
    assert len(advice) == len(document["advice"]) > 0
    for line, told in zip(advice, document["advice"], strict=True):
        gain, change = line.strip().split("%  ")
        assert change == told["change"]
        assert_shows(gain, 100 * told["gain"])


def test_explain_says_when_nothing_helps(both, weights, monkeypatch):
    monkeypatch.setattr(sys.modules["prunecast.codesign.explain"], "advise", lambda *_, **__: ())
    document, lines = both("explain", weights, "--target", "a.weight", *FAST)
    assert document["advice"] == []
    assert lines[-2:] == ["What would help", "  nothing that was tried saves more than 1 %"]


def test_predict(both, weights):
    document, lines = both("predict", weights, *FAST)
    shown = [line for line in lines if re.search(r"\([\d.]+ - [\d.]+\)", line) and line.startswith("  ")]
    assert len(shown) == len(document["predictions"])
    for line, row in zip(shown, document["predictions"], strict=True):
        kernel, pattern, sparsity, time, low, _, high, speedup, *bound = line.split()
        assert (kernel, pattern, " ".join(bound)) == (row["kernel"], row["pattern"], row["bound"])
        assert_shows(sparsity, 100 * row["sparsity"])
        assert_shows(speedup, row["speedup_over_dense"])
        for text, name in ((time, "seconds"), (low, "seconds_low"), (high, "seconds_high")):
            assert_shows(text.strip("()"), 1e6 * row[name])
    density = {(row["layer"], row["kernel"]): row["density"] for row in document["crossovers"]}
    for cells in rows_below(lines, "layer"):
        for kernel, text in cells.items():
            if kernel != "layer":
                found = density[cells["layer"], kernel]
                assert text == "never" if found is None else assert_shows(text, 100 * found) is None
    dense_s = {row["layer"]: row["seconds"] for row in document["predictions"] if row["kernel"] == "dense"}
    best_s = {
        layer: min(row["seconds"] for row in document["predictions"] if row["layer"] == layer)
        for layer in dense_s
    }
    dense, best, speedup = numbers(only(lines, "All layers: "))
    assert_shows(dense, 1e6 * sum(dense_s.values()))
    assert_shows(best, 1e6 * sum(best_s.values()))
    assert_shows(speedup, sum(dense_s.values()) / sum(best_s.values()))


@pytest.mark.parametrize(
    ("name", "workload", "options"),
    [
        ("bert-small", "prefill:4x512", ("--price", "2")),
        ("qwen2.5-0.5b", "decode:4@512", ("--price", "3", "--tensor-parallel", "2")),
    ],
)
def test_predict_a_model(both, tmp_path, monkeypatch, name, workload, options):
    monkeypatch.chdir(tmp_path)
    asked = ("--workload", workload, "--engine", "model", *options)
    document, lines = both("predict", name, *asked)
    whole, (phase,) = document["whole_model"], document["whole_model"]["phases"]
    sides = dense, best = phase["dense"], phase["best"]
    verdict = re.search(
        r"dense ([\d.]+) ms, pruned by .* ([\d.]+) ms \(([\d.]+) - ([\d.]+)\): ([\d.]+)x", lines[1]
    )
    names = (dense["seconds"], best["seconds"], best["seconds_low"], best["seconds_high"])
    for text, seconds in zip(verdict.groups()[:4], names, strict=True):
        assert_shows(text, 1e3 * seconds)
    assert_shows(verdict[5], dense["seconds"] / best["seconds"])

    text = " ".join(line.strip() for line in lines)
    gpus, passes = phase["gpus"], 4 * (1 if "decode" in workload else 512)
    rates = re.search(r"rate +([\d,]+) -> ([\d,]+) tokens/s", text).groups()
    of_one = {"a sequence": 4 if "decode" in workload else None, "a GPU": gpus if gpus > 1 else None}
    for rate, side in zip(rates, sides, strict=True):
        assert_shows(rate, passes / side["seconds"])
    for name, count in of_one.items():
        found = re.search(rf"([\d,]+) -> ([\d,]+) {name}[,;]?", text)
        assert bool(found) == (count is not None)
        for rate, side in zip(found.groups() if found else (), sides, strict=False):
            assert_shows(rate, passes / count / side["seconds"])

    def total(side):
        return sum(side["memory_bytes"].values()) / 1e9

    memory = re.search(
        r"memory +([\d.]+) -> ([\d.]+) of (\d+) GB(.*?); largest batch ([\d,]+) -> ([\d,]+)", text
    )
    for shown, value in zip(
        memory.groups()[:3], (total(dense), total(best), whole["gpu_memory_bytes"] / 1e9), strict=True
    ):
        assert_shows(shown, value)
    assert memory[4] == (" on each GPU" if gpus > 1 else "")
    assert [int(each.replace(",", "")) for each in memory.groups()[4:]] == [s["largest_batch"] for s in sides]
    weights = re.search(r"of it +weights ([\d.]+) -> ([\d.]+)", text).groups()
    for shown, side in zip(weights, sides, strict=True):
        assert_shows(shown, side["memory_bytes"]["weights"] / 1e9)
    for part in ("cache", "activations"):
        found = re.search(rf"{part} ([\d.]+)", text)
        assert bool(found) == (best["memory_bytes"][part] > 5e6)
        if found:
            assert_shows(found[1], best["memory_bytes"][part] / 1e9)

    energy = re.search(r"energy +(\S+) -> (\S+) J a token, (\d+) -> (\d+) W", text).groups()
    for joules, watts, side in zip(energy[:2], energy[2:], sides, strict=True):
        assert_shows(watts, side["power"]["watts"])
        assert_shows(joules, gpus * side["power"]["watts"] * side["power"]["seconds"] / passes)
    price = float(options[1])
    costs = re.search(r"cost +(\S+) -> (\S+) for a million tokens, at (\d) an hour", text).groups()
    assert float(costs[2]) == price
    for cost, side in zip(costs, sides, strict=False):
        assert_shows(cost, side["cost_per_million"])
        assert_shows(cost, 1e6 * price * gpus * side["seconds"] / 3600 / passes)
    bound = re.search(r"bound +([\d.]+) -> ([\d.]+) ms with all but products", text).groups()
    for shown, side in zip(bound, sides, strict=True):
        assert_shows(shown, 1e3 * side["seconds_fused"])


def test_prune_to_a_sparsity(both, run, weights):
    code, out, _ = run("prune", weights, "-o", "pruned", "--pattern", "tile-wise:64", "--sparsity", "0.6")
    assert code == 0
    with open("pruned/recipe.json", encoding="utf-8") as file:
        recipe = json.load(file)
    rows = rows_below(out.splitlines(), "layer")
    for cells, layer in zip(rows, recipe["layers"], strict=True):
        assert (cells["layer"], cells["M x K"]) == (layer["layer"], f"{layer['m']} x {layer['k']}")
        assert_shows(cells["sparsity %"], 100 * layer["sparsity"])
        assert_shows(cells["importance kept %"], 100 * layer["retained_importance"])
    assert "Wrote weights.safetensors (tile-wise:64) and recipe.json in pruned." in out


def test_prune_to_a_time(run, weights):
    code, out, _ = run("prune", weights, "-o", "p", "--latency", "80%", "--solutions", "2", *FAST)
    assert code == 0
    lines = out.splitlines()
    recipes = []
    for folder in ("p", "p-2"):
        with open(f"{folder}/recipe.json", encoding="utf-8") as file:
            recipes.append(json.load(file))
    recipe, other = recipes
    dense_s = recipe["dense_seconds"]
    rows = rows_below(lines, "layer")
    for cells, layer in zip(rows, recipe["layers"], strict=True):
        assert (cells["pattern"], cells["kernel"]) == (layer["pattern"], layer["kernel"])
        assert_shows(cells["sparsity %"], 100 * layer["removed"])
        assert_shows(cells["kept %"], 100 * layer["retained_importance"])
        assert_shows(cells["time us"], 1e6 * layer["seconds"])
        assert_shows(cells["speedup"], layer["dense_seconds"] / layer["seconds"])
    for cells, point in zip(rows_below(lines, "time us"), recipe["front"], strict=True):
        assert_shows(cells["time us"], 1e6 * point["seconds"])
        assert_shows(cells["of dense %"], 100 * point["seconds"] / dense_s)
        assert_shows(cells["importance kept %"], 100 * point["retained_importance"])
        assert_shows(cells["sparsity %"], 100 * point["sparsity"])
    (whole,) = (line for line in lines if "% of dense (" in line)
    wanted = [1e6 * recipe["seconds"], 100 * recipe["seconds"] / dense_s, dense_s / recipe["seconds"]]
    wanted += [100 * recipe["retained_importance"], 100 * recipe["sparsity"]]
    for text, value in zip(numbers(whole), wanted, strict=True):
        assert_shows(text, value)
    second = (
        only(lines, f"Or {other['offered']}: ").removeprefix(f"Or {other['offered']}").removesuffix(": p-2.")
    )
    wanted = [1e6 * other["seconds"], 100 * other["retained_importance"], 100 * other["sparsity"]]
    for text, value in zip(numbers(second), wanted, strict=True):
        assert_shows(text, value)
    points = only(lines, "Uniform (closed form): ").removeprefix("Uniform (closed form): ").split("; ")
    for text, point in zip(points, recipe["uniform"], strict=True):
        shown = re.fullmatch(r"(.*) of (\d+)% ([\d.]+) us, keeps ([\d.]+)%\.?", text)
        assert shown[1] == point["pattern"]
        assert_shows(shown[2], 100 * point["removed"])
        assert_shows(shown[3], 1e6 * point["seconds"])
        assert_shows(shown[4], 100 * point["retained_importance"])


def test_search(run, weights):
    asked = ("search", weights, "--latency", "80%", *FAST, "--trials", "2", "-o", "p")
    code, out, _ = run(*asked)
    assert code == 0
    lines = out.splitlines()
    with open("p/recipe.json", encoding="utf-8") as file:
        recipe = json.load(file)
    study = recipe["study"]
    trials = {str(trial["trial"]): trial for trial in study["trials"]}
    rows = rows_below(lines, "trial")
    assert rows
    for cells in rows:
        trial = trials[cells["trial"]]
        assert_shows(cells["time us"], 1e6 * trial["seconds"])
        assert_shows(cells["sparsity %"], 100 * trial["sparsity"])
        assert_shows(cells["kept %"], 100 * trial["retained_importance"])
    for cells, point in zip(rows_below(lines, "time, % of dense"), study["pareto"], strict=True):
        assert_shows(cells["time, % of dense"], 100 * point["time_share"])
        assert_shows(cells["plain kept %"], 100 * point["plain_importance"])
        assert_shows(cells["kept %"], 100 * point["retained_importance"])
        assert cells["trial"] == str(point["trial"])
    (best,) = (line for line in lines if " trials, " in line)
    kept, time = re.search(r"keeps ([\d.]+)% of the importance in ([\d.]+) us", best).groups()
    assert_shows(kept, 100 * recipe["retained_importance"])
    assert_shows(time, 1e6 * recipe["seconds"])
    plain, plain_us = re.search(r"allocation ([\d.]+)% in ([\d.]+) us", best).groups()
    assert_shows(plain, 100 * trials["0"]["retained_importance"])
    assert_shows(plain_us, 1e6 * trials["0"]["seconds"])


def test_sweep():
    case = {"gpu": "h200-sxm", "m": 512, "k": 256, "n": 4096, "dtype": "fp16", "engine": "model"}
    case |= {"state": "burst", "launch": "graph", "error": None}
    dense = case | {"kernel": "dense", "pattern": "dense", "sparsity": None, "seconds": 7.654e-6}
    sparse = case | {"kernel": "csr", "pattern": "unstructured", "sparsity": 0.5551, "seconds": 2.345e-6}
    found = [dense, sparse, sparse | {"n": 64, "seconds": None, "error": "too few"}]
    lines = str(SweepTable(rows=tuple(found))).splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [
        ["h200-sxm", shape] for shape in ("512x256x4096", "512x256x4096", "512x256x64")
    ]
    assert lines[1].split()[2:] == ["dense", "dense", "7.65", "1.00x"]
    assert lines[2].split()[2:] == ["unstructured", "csr", "55.5", "2.35", "3.26x"]
    assert lines[3].split()[2:] == ["unstructured", "csr", "55.5", "-"]
    assert SweepTable(rows=tuple(found)).notes == ("1 cases cannot be run, the first: too few",)


def test_compare(both, run, weights):
    for name, gpu in (("a", "h200-sxm"), ("b", "t4")):
        run("predict", weights, *FAST, "--gpu", gpu, "-o", f"{name}.json", "--no-crossovers")
    document, lines = both("compare", "a.json", "b.json")
    first, second = document["columns"]
    rows = rows_below(lines, "layer")
    assert rows
    for cells, row in zip(rows, document["rows"], strict=True):
        assert (cells["layer"], cells["kernel"]) == (row["layer"], row["kernel"])
        assert_shows(cells[f"{first} us"], 1e6 * row["seconds"][0])
        assert_shows(cells[f"{second} us"], 1e6 * row["seconds"][1])
        assert_shows(cells[f"{second} ratio"], row["seconds"][1] / row["seconds"][0])


def test_gpus(both, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    document, lines = both("gpus")
    units = {
        **{"SMs": ("sm_count", 1), "cc": ("compute_capability", 1), "clock MHz": ("max_clock_hz", 1e6)},
        **{"DRAM GB/s": ("dram_peak_bytes_per_s", 1e9), "L2 MiB": ("l2_bytes", 2**20)},
        "fp16 tensor TFLOP/s": ("tensor_fp16_peak_flop_per_s", 1e12),
    }
    rows = rows_below(lines, "name")
    for cells, row in zip(rows, document["gpus"], strict=True):
        assert (cells["name"], cells["title"], cells["times"]) == (
            row["name"],
            row["title"],
            row["checked_against"],
        )
        for heading, (name, unit) in units.items():
            assert_shows(cells[heading], row[name] / unit)


@pytest.mark.parametrize(
    ("after", "left"),
    [(8, "8 of 16 heads are left"), ([3, 9, 5], "3 to 9 of 16 heads are left in each layer")],
)
def test_what_is_left_of_removed_parts(after, left):
    row = {"part": "heads", "before": 16, "after": after, "criterion": "magnitude"}
    assert list(_removed_lines([row])) == [f"removed: {left}, chosen by magnitude."]
    assert list(_removed_lines([row | {"criterion": "none"}])) == [f"removed: {left}."]


def test_compare_gpus(run, tmp_path, monkeypatch):
    """bert-small on two GPUs; each row has the numbers of `predict` on that GPU."""
    monkeypatch.chdir(tmp_path)
    asked = ("bert-small", "--workload", "prefill:4x128", "--engine", "model")
    gpus = ("h200-sxm", "l4")
    words = [word for gpu in gpus for word in ("--gpu", gpu)]
    _, out, _ = run("compare", *asked, *words, "--price", "h200-sxm=3", "--price", "l4=0.5", "-o", "out.json")
    with open("out.json", encoding="utf-8") as file:
        compared = {row["gpu"]: row for row in json.load(file)["gpus"]}
    shown = {cells["GPU"]: cells for cells in rows_below(out.splitlines(), "GPU")}
    assert [*shown] == sorted(gpus, key=lambda gpu: compared[gpu]["seconds"])
    for gpu, price in zip(gpus, (3, 0.5), strict=True):
        found = json.loads(run("predict", *asked, "--gpu", gpu, "--json", "--no-crossovers")[1])
        (phase,) = found["whole_model"]["phases"]
        dense, best, row, cells = phase["dense"], phase["best"], compared[gpu], shown[gpu]
        for side, name in ((dense, "dense_seconds"), (best, "seconds")):
            assert row[name] == pytest.approx(side["seconds"])
        assert row["seconds_low"] == pytest.approx(best["seconds_low"])
        assert row["seconds_high"] == pytest.approx(best["seconds_high"])
        assert row["per_s"] == pytest.approx(4 * 128 / best["seconds"])
        assert row["memory_bytes"] == pytest.approx(sum(best["memory_bytes"].values()))
        assert row["joules"] == pytest.approx(best["power"]["watts"] * best["power"]["seconds"] / (4 * 128))
        assert row["largest_batch"] == best["largest_batch"]
        assert row["fits"] is True
        assert_shows(cells["dense"], 1e3 * dense["seconds"])
        assert_shows(cells["pruned"], 1e3 * best["seconds"])
        for text, name in zip(cells["interval"].split("-"), ("seconds_low", "seconds_high"), strict=True):
            assert_shows(text, 1e3 * best[name])
        assert_shows(cells["gain"], dense["seconds"] / best["seconds"])
        assert_shows(cells["per s"], row["per_s"])
        assert_shows(cells["J"], row["joules"])
        assert_shows(cells["GB"], row["memory_bytes"] / 1e9)
        assert row["cost_per_million"] == pytest.approx(1e6 * price / 3600 / row["per_s"])
        assert_shows(cells["cost"], row["cost_per_million"])


def test_shapes_of_a_model_have_the_mean_times_of_their_layers(both, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    document, lines = both("predict", "bert-small", "--workload", "prefill:4x128", "--engine", "model")
    rows = rows_below(lines, "layer")
    assert rows
    for cells in rows:
        m, k, n = map(int, cells["shape"].split("x"))
        own = [row for row in document["predictions"] if (row["m"], row["k"], row["n"]) == (m, k, n)]
        dense = [row["seconds"] for row in own if row["kernel"] == "dense"]
        chosen = document["whole_model"]["kernels"]
        best = [row["seconds"] for row in own if row["kernel"] == chosen[row["layer"]]]
        assert_shows(cells["dense us"], 1e6 * np.mean(dense))
        assert_shows(cells["best us"], 1e6 * np.mean(best))
        assert_shows(cells["speedup"], np.mean(dense) / np.mean(best))
        assert cells["times"] == "4"  # blocks of bert-small


def test_a_mean_pass_is_weighted_by_the_shares_of_its_passes(both, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked = ("--workload", "prefill:4x128=1,prefill:1x512=3", "--engine", "model")
    document, lines = both("predict", "bert-small", *asked)
    phases = document["whole_model"]["phases"]
    dense, best = (
        sum(share * phase[side]["seconds"] for share, phase in zip((0.25, 0.75), phases, strict=True))
        for side in ("dense", "best")
    )
    shown = re.fullmatch(
        r"mean pass: dense ([\d.]+) ms, pruned ([\d.]+) ms: ([\d.]+)x", only(lines, "mean pass: ")
    )
    for text, value in zip(shown.groups(), (1e3 * dense, 1e3 * best, dense / best), strict=True):
        assert_shows(text, value)
    assert [line.rpartition(", ")[2] for line in lines if line.endswith("of the passes")] == [
        f"{share} % of the passes" for share in (25, 75)
    ]


def pruned_model(**changes):
    """What `prune` prints remarks about."""
    own = {"dense_seconds": 4e-6, "seconds": 2e-6, "sparsity": 0.5, "time": None}
    own["layers"] = [SimpleNamespace(pattern=pattern, speedup=1.5) for pattern in ("dense", "2:4", "dense")]
    result = SimpleNamespace(**{name: changes.pop(name, value) for name, value in own.items()})
    usual = {
        "removed": (),
        "has_weights": True,
        "unpruned_seconds": None,
        "uniform": (),
        "offered": "everything",
    }
    return SimpleNamespace(result=result, **{**usual, **changes})


def test_remarks_count_layers_times_and_operators():
    alone = "The time is that of these products: attention, norms and embeddings are not included."
    dense = "2 of 3 layers stay dense: nothing gains enough there."
    assert [*_remarks(pruned_model())] == [alone, dense]
    assert [*_remarks(pruned_model(sparsity=0.0))][1].endswith(
        "stay dense: the dense time is within the budget."
    )
    slow = [SimpleNamespace(pattern="2:4", speedup=speedup) for speedup in (0.99, 1.0, 1.01)]
    (_, slower) = _remarks(pruned_model(layers=slow))
    assert slower.startswith("1 pruned layers are slower than dense ones, but save the pass more")
    pruned = [SimpleNamespace(pattern="2:4", speedup=1.5)]
    assert [*_remarks(pruned_model(layers=pruned, has_weights=False))] == [
        "The weights are random with heavy tails: what is kept of their importance says little.",
        alone,
    ]
    for count, listed in ((1, "u0"), (5, "u0, u1, u2, u3, u4"), (6, "u0, u1, u2, u3, u4, ...")):
        kinds = {f"u{place}": "unknown" for place in range(count)} | {"a": "gemm"}
        time = SimpleNamespace(product_seconds=0.75e-6, kind_of=kinds)
        assert [*_remarks(pruned_model(layers=pruned, time=time))] == [
            "1.25 us of the pass are not products with weights.",
            f"{count} unknown operators count as the memory they move: {listed}.",
        ]


@pytest.mark.parametrize(
    ("unpruned_s", "said"),
    [
        (None, None),
        (4e-6, None),
        (4e-6 / 1.02, None),
        (4e-6 / 1.021, "1.02x by another kernel without pruning, 1.96x by pruning."),
        (2.5e-6, "1.60x by another kernel without pruning, 1.25x by pruning."),
    ],
)
def test_another_kernel_is_named_if_it_gains_more_than_two_percent(unpruned_s, said):
    first, *others = _yardsticks(pruned_model(unpruned_seconds=unpruned_s))
    assert (first if others else None) == said


def test_a_timeline_has_the_times_of_its_trace(run, weights):
    asked = ("--target", "b.weight", "-n", "64", "--kernel", "tile-wise", "-o", "t.json")
    code, out, _ = run("timeline", weights, *asked, "--sm", "0,2", "--first-waves", "0")
    assert code == 0
    with open("t.json", encoding="utf-8") as file:
        content = file.read()
    slices, size = re.search(r"t.json: (\d+) slices, ([\d.]+) MB", out).groups()
    assert_shows(size, len(content.encode()) / 1e6)
    events = json.loads(content)["traceEvents"]
    assert int(slices) == sum(event["ph"] == "X" for event in events)
    shown, whole = re.search(r"SMs 0,2 of 132: up to ([\d.]+) us of ([\d.]+) us", out).groups()
    assert float(shown) == pytest.approx(
        max(event["ts"] + event["dur"] for event in events if event["ph"] == "X"), rel=0.01
    )
    assert float(shown) <= float(whole)

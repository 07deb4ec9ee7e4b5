"""Numbers that README and docs/results.md quote are those of the records and of the pages made from them."""

import csv
import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

from benchmarks.pytorch.judge import judged
from benchmarks.pytorch.overview import renewed
from benchmarks.tile.__main__ import quoted_speedups
from benchmarks.tile.cases import LARGE, LAYERS
from tests.shown import README, ROOT

MEASURED = ROOT / "benchmarks" / "measured"


@cache
def section(title: str) -> str:
    """The text of docs/results.md under a heading."""
    text = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    (found,) = re.findall(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return found


def cells(text: str) -> list[list[str]]:
    """The rows of the tables of a text, cell by cell, without heads."""
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows]


def record(name: str) -> list[dict[str, str]]:
    with (MEASURED / name).open(encoding="utf-8") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def mean(values: Iterable[float]) -> float:
    logs = list(map(math.log, values))
    return math.exp(sum(logs) / len(logs))


def errors_of(page: str) -> dict[str, tuple[str, str]]:
    """Kernel -> cases and mean error of the simulator in bursts, as a validation page prints them."""
    first = (ROOT / "docs" / page).read_text(encoding="utf-8").split("The *fit* cases")[0]
    return {row[0]: (row[3], row[4]) for row in cells(first) if row[1:3] == ["burst", "simulator"]}


def test_errors_by_kernel_are_those_of_the_validation_page() -> None:
    found = {re.findall(r"`(.+?)`", row[0])[0]: (row[1], row[2]) for row in cells(section(ERRORS))[2:]}
    assert found == errors_of("validation.md")


ERRORS = "Errors of the simulator, kernel by kernel"


@pytest.mark.parametrize(("gpu", "page"), [("H200", "validation.md"), ("H100", "validation_h100.md")])
def test_the_readme_has_the_range_of_these_errors(gpu: str, page: str) -> None:
    errors = [float(error.removesuffix(" %")) for _, error in errors_of(page).values()]
    (row,) = (row for row in cells(README.read_text(encoding="utf-8")) if row[0].startswith(gpu))
    assert row[2] == f"{min(errors)} to {max(errors)} % by kernel"
    if gpu == "H200":
        assert f"{sum(int(count) for count, _ in errors_of(page).values()):,} judge cases" in row[1]


@pytest.mark.parametrize(
    ("title", "kernel"), [("STSpMM over cuBLAS", "stspmm"), ("2:4 inside tiles (TVW) over cuBLAS", "2:4")]
)
def test_tile_speedups_are_those_of_the_records_by_height_of_the_tiles(title: str, kernel: str) -> None:
    for row in cells(section(title))[2:]:
        sparsity = float(row[0].removesuffix(" %")) / 100.0
        for cell, heights in ((row[1], (128,)), (row[2], (128, 256))):
            own = quoted_speedups(heights)[kernel, sparsity]
            means = [mean(own[layer] for layer in layers) for layers in (LARGE, LAYERS)]
            assert cell == ", ".join(f"{each:.2f}" for each in means)


def test_few_tokens_are_as_fast_as_the_record_says() -> None:
    best: dict[str, float] = defaultdict(float)
    for row in record("h200-sxm-small-n-2026-11-21.csv"):
        if row["us"] and re.match(r"\d+x\d+ w", row["form"]):
            best[row["case"]] = max(best[row["case"]], float(row["dense_us"]) / float(row["us"]))
    one, sixteen = (best[f"11008x4096x{tokens} d=0.25"] for tokens in (1, 16))
    tiles = quoted_speedups()["stspmm", 0.75][11008, 4096, 16]
    text = section("One token and sixteen")
    assert f"runs {one:.2f} times as fast as cuBLAS with one token" in text
    assert f"with sixteen {sixteen:.2f} times (`small-n`) and {tiles:.2f} times (`stspmm`)" in text


def test_convolutions_are_as_fast_as_the_record_says() -> None:
    own: dict[str, float] = {}
    dense: dict[str, float] = defaultdict(lambda: math.inf)
    for row in record("h200-sxm-convolutions-2026-11-28.csv"):
        if row["tiles"] == "cuDNN":
            dense[row["case"]] = min(dense[row["case"]], float(row["us"]))
        elif row["chosen"] == "1" and row["tiles"] != "tile-wise:256":
            own[row["case"]] = float(row["us"])
    speedups = [dense[case] / us for case, us in own.items()]
    text = section("Convolutions, layer by layer")
    low, high = min(speedups), max(speedups)
    assert (
        f"{mean(speedups):.2f} times as fast as cuDNN ({low:.2f} to {high:.2f} times), {len(own)} layers"
        in text
    )
    assert f"{mean(speedups):.2f} times as fast as cuDNN's" in README.read_text(encoding="utf-8")


def test_convolutional_networks_are_as_fast_as_the_record_says() -> None:
    path = ROOT / "benchmarks" / "measured" / "h200-sxm-networks-2026-11-28.json"
    names = {"resnet50": "ResNet-50", "vgg16": "VGG-16", "resnet18": "ResNet-18"}
    text = section("Whole convolutional networks")
    for one in json.loads(path.read_text(encoding="utf-8"))["networks"]:
        us = one["us"]
        dense, own = (
            min(us[f"{kind} {how}"] for how in ("graph", "compiled")) for kind in ("dense", "sparse")
        )
        eager = f"{us['dense eager']:.0f}, {us['sparse eager']:.0f}"
        times = f"{dense:.0f} | {own:.0f} | **{dense / own:.2f}** | {eager}"
        assert f"| {names[one['network']]} | {one['images']} | {times} | " in text


def test_guided_tiles_gain_what_the_record_says() -> None:
    rows = json.loads((MEASURED / "h200-sxm-guided-2026-11-23.json").read_text(encoding="utf-8"))
    gains: dict[str, list[float]] = defaultdict(list)
    misses = []
    for row in rows:
        measured, predicted = (100.0 * (1.0 - us[1] / us[0]) for us in (row["measured_us"], row["model_us"]))
        gains[row["kernel"]].append(measured)
        misses.append(abs(measured - predicted))
    text = section("Guided ATP")
    for kernel in ("stspmm", "tile-wise"):
        assert f"{min(gains[kernel]):.1f} to {max(gains[kernel]):.1f} % less" in text
    assert f"differ by {sum(misses) / len(misses):.1f} points" in text


def test_the_readme_quotes_losses_of_the_language_study() -> None:
    page = (ROOT / "docs" / "studies" / "language.md").read_text(encoding="utf-8")
    rows = cells(page.split("<!-- table begins -->")[1].split("<!-- table ends -->")[0])[2:]
    lost = {(row[0], row[1].strip("*")): (row[2], row[4].strip("*").split(" ")[0]) for row in rows}
    two_of_four = lost["its own", "2:4"]
    tiles, narrow = (lost["70%", name][1] for name in ("tile-wise:128", "narrow 2:4"))
    text = README.read_text(encoding="utf-8")
    share = f"{float(two_of_four[0].removesuffix('%')):.0f} %"
    assert f"{float(two_of_four[1]):.2f} nats a token with 2:4 at {share} of the dense time" in text
    assert f"tiles lost {float(tiles):.2f}, narrower layers with 2:4 {float(narrow):.2f}" in text


@pytest.mark.slow
def test_whole_models_are_predicted_as_pages_and_picture_show() -> None:
    """If this fails because predictions changed, `python -m benchmarks.pytorch.overview` renews them."""
    found = dict(judged())
    for file, text in renewed(found).items():
        assert Path(file).read_text(encoding="utf-8") == text, file
    measured = section("Whole models in PyTorch, measured")
    for one in found.values():
        if one.case.sparsity < 0.9:
            assert f"{one.speedup.measured:.2f} times" in measured

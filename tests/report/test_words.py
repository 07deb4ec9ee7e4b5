"""The words of the page are explained, and its colours can be read."""

import re
from dataclasses import replace
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from prunecast.codesign import predict
from prunecast.kernels import KERNELS
from prunecast.report.page import FILTERS, LEAST_GAIN, VERDICTS, _line, meanings, summary_of, words_of
from prunecast.report.pictures import PAGE
from prunecast.simulator import PIPES, STALLS
from prunecast.simulator.result import ATTRIBUTION

BUNDLED = Path(__file__).parents[2] / "examples/stdlib_lm/weights.safetensors"
CSS = (resources.files("prunecast.report") / "report.css").read_text(encoding="utf-8")


def test_every_unit_wait_part_and_kernel_has_a_meaning():
    assert {*PIPES, *STALLS, *ATTRIBUTION, *KERNELS, "latency"} <= set(meanings())


def test_a_page_explains_what_it_shows():
    table = predict(BUNDLED, gpu="h200-sxm", tokens=64, engine="model",
                    sparsity=0.5, target="re:blocks.0.ffn", crossovers=False)  # fmt: skip
    explained = set(words_of(table))
    shown = {row.kernel for row in table} | {row.bound for row in table} | {"model", "burst", "graph"}
    assert shown <= explained
    assert {line.verdict for line in summary_of(table)} <= set(VERDICTS) <= explained


@pytest.mark.parametrize(("rows", "verdict"), [(1, "nothing to compare with"), (2, "stay dense")])
def test_a_slow_kernel_alone_is_compared_with_dense(rows, verdict):
    """CSR keeps half of the weights of a layer that dense kernels run ten times as fast."""
    weights = np.random.default_rng(0).standard_normal((1024, 1024)).astype(np.float16)
    table = predict({"w": weights}, gpu="h200-sxm", tokens=4096, engine="model",
                    sparsity=0.5, kernels=["csr"], crossovers=False)  # fmt: skip
    assert len(table) == 2
    assert _line(tuple(table[:rows])).verdict == verdict


@pytest.mark.parametrize(
    ("gain", "dense", "sparse", "verdict", "sure"),
    [
        (LEAST_GAIN, (2.0, 3.0), (1.0, 1.9), "pays", "win"),
        (LEAST_GAIN, (2.0, 3.0), (1.0, 2.0), "may pay", "open"),
        (LEAST_GAIN - 1e-9, (2.0, 3.0), (1.0, 1.9), "no gain seen", "open"),
        (0.5, (2.0, 3.0), (3.0, 4.0), "no gain seen", "open"),
        (0.5, (2.0, 3.0), (3.1, 4.0), "stay dense", "loss"),
    ],
)
def test_a_verdict_is_sure_only_if_the_intervals_do_not_touch(gain, dense, sparse, verdict, sure):
    """Intervals of dense and sparse in us. Without a gain, an interval below that of dense proves nothing."""
    weights = np.random.default_rng(0).standard_normal((256, 256)).astype(np.float16)
    first, other = predict({"w": weights}, gpu="h200-sxm", tokens=64, engine="model",
                           kernels=["stspmm"], crossovers=False)  # fmt: skip
    rows = (
        replace(first, seconds=2.5, seconds_low=dense[0], seconds_high=dense[1]),
        replace(
            other, seconds=2.5 / gain, seconds_low=sparse[0], seconds_high=sparse[1], speedup_over_dense=gain
        ),
    )
    line = _line(rows)
    assert (line.verdict, line.sure, line.dense) == (verdict, sure, rows[0])
    assert line.best.seconds == min(row.seconds for row in rows)
    assert line.rows == rows


def luminance(colour):
    """Relative luminance of WCAG 2.1."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    dark, bright = sorted((luminance(one), luminance(other)))
    return (bright + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_text_and_marks_stand_out(scheme):
    block = re.findall(r":root \{(.*?)\}", CSS, re.S)[scheme]
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))
    for ground in (colours["paper"], colours["soft"]):
        for text in ("ink", "quiet", "link", "good", "bad", "open"):
            assert contrast(colours[text], ground) >= 4.5, (text, ground)
        series = [colours[f"series-{place}"] for place in range(1, len(PAGE.series) + 1)]
        assert all(contrast(mark, ground) >= 3.0 for mark in series), ground


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("blocks.0.ffn", ["blocks.", "0.", "ffn"]),
        ("a/b", ["a/", "b"]),
        ("..x", [".", ".", "x"]),
        ("m" * 50, ["m" * 24, "m" * 24, "mm"]),
        ("<b>.x", ["&lt;b&gt;.", "x"]),
        ("\x1b", ["\\x1b"]),
    ],
)
def test_names_break_behind_dots_and_slashes(name, parts):
    assert str(FILTERS["breakable"](name)) == "<wbr>".join(parts)

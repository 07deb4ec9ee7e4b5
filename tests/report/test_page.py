"""The page as a whole: its sections, its safety, its size and that it is the same twice."""

import html
import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from prunecast.codesign import predict
from prunecast.codesign.table import fastest
from prunecast.codesign.whole_model import PARTS
from prunecast.errors import BadInput
from prunecast.files import write_text_aside
from prunecast.hardware import load_gpu
from prunecast.report.page import render_page, summary_of
from prunecast.report.pictures import MeasuredPoint
from prunecast.report.study import MOST_STUDIED, chosen_layers, study
from prunecast.workload import ConvSettings
from prunecast.workload.engines import Engine
from prunecast.workload.layers import Skipped, load_layers

BUNDLED = Path(__file__).parents[2] / "examples/stdlib_lm/weights.safetensors"
SECTIONS = (
    "summary",
    "speed-of-light",
    "roofline",
    "occupancy",
    "tiles",
    "work",
    "stalls",
    "attribution",
    "crossover",
    "pareto",
    "advice",
    "words",
    "provenance",
)
VOID = {"meta", "br", "wbr", "hr", "img", "link", "input"}
EVIL = "<script>alert(1)</script>\"'\x1b"


class Outline(HTMLParser):
    """Fails on tags that do not nest; keeps sections, ids, links and texts of tags that load something."""

    def __init__(self):
        super().__init__()
        self.open, self.sections, self.ids, self.loads, self.tags = [], [], [], [], []

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        if "data-section" in found:
            self.sections.append(found["data-section"])
        if "id" in found:
            self.ids.append(found["id"])
        self.loads += [found[name] for name in ("src", "href", "xlink:href", "action") if name in found]

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def outline(page):
    parser = Outline()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    return parser


@pytest.fixture(scope="module")
def weights():
    rng = np.random.default_rng(0)
    return {
        EVIL: rng.standard_normal((256, 128)).astype(np.float16),
        "plain": rng.standard_normal((128, 256)).astype(np.float16),
    }


@pytest.fixture(scope="module")
def table(weights):
    return predict(weights, gpu="h200-sxm", tokens=256)


@pytest.fixture(scope="module")
def page(weights, table):
    return render_page(table, weights, gpu="h200-sxm")


def test_every_section_is_there_in_order(page):
    sections = outline(page).sections
    first_layer = sections[: len(SECTIONS) - 2]
    assert tuple(first_layer) == SECTIONS[:-2]
    assert tuple(sections[-2:]) == SECTIONS[-2:]
    assert sections.count("roofline") == 2


def test_ids_are_unique_and_links_lead_to_them(page):
    found = outline(page)
    assert len(set(found.ids)) == len(found.ids)
    inner = {link[1:] for link in found.loads if link.startswith("#")}
    inner |= set(re.findall(r"url\(#([^)]*)\)", page))
    assert inner
    assert inner <= set(found.ids)


def test_nothing_comes_from_elsewhere(page):
    assert "http:" not in page
    assert "https:" not in page
    assert "@import" not in page
    assert all(link.startswith(("#", "data:image/png;base64,")) for link in outline(page).loads)


def test_names_are_text(page):
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page.replace("<wbr>", "")
    assert "\x1b" not in page
    assert outline(page).tags.count("script") == 1


def test_texts_of_every_origin_are_text(weights):
    """Notes, reasons, names of files and titles of GPUs may come from files that others wrote."""
    table = predict(weights, gpu="h200-sxm", tokens=256, kernels="dense", engine="model", crossovers=False)
    evil = replace(
        table,
        predictions=(replace(table[1], note=f"a {EVIL}"),),
        skipped=(Skipped(layer="plain", kernel=f"b {EVIL}", reason=f"c {EVIL}"),),
        provenance=replace(table.provenance, source=f"d {EVIL}"),
    )
    point = MeasuredPoint(f"e {EVIL}", "dense", 1e-5, 1e-5, 1e-5, 2e-5)
    gpu = replace(load_gpu("h200-sxm"), title=f"f {EVIL}")
    page = render_page(evil, weights, gpu=gpu, measured=[point])
    for name in "abcdef":
        assert f"{name} &lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert outline(page).tags.count("script") == 1


def test_the_same_input_gives_the_same_bytes(weights, table, page):
    assert render_page(table, weights, gpu="h200-sxm") == page
    assert "dc:date" not in page


def test_pictures_follow_the_colours_of_the_page(page):
    assert "currentColor" in page
    assert "var(--series-2)" in page
    assert not re.search("#0a0a0[1-9]|#01010[1]|#020202|#000000|#ffffff[^;]", page.split("</style>", 1)[1])


def test_bars_of_the_attribution_add_up(page, table):
    part = page.split('data-section="attribution"')[1].split("</section>")[0]
    widths = [float(width) for width in re.findall(r"width:([\d.]+)%", part)]
    assert sum(widths) == pytest.approx(100, abs=0.05 * len(widths))


def test_the_closed_form_model_leaves_out_what_it_does_not_know(weights):
    page = render_page(predict(weights, gpu="h200-sxm", tokens=256, engine="model"), weights, gpu="h200-sxm")
    found = outline(page).sections
    assert "stalls" not in found
    assert {"roofline", "work", "crossover", "advice"} <= set(found)


def test_dense_alone_still_makes_a_page(weights):
    table = predict(weights, gpu="h200-sxm", tokens=256, kernels="dense", engine="model", crossovers=False)
    found = outline(render_page(table, weights, gpu="h200-sxm")).sections
    assert "tiles" not in found
    assert "roofline" in found


@pytest.mark.parametrize("pattern", ["atp:128", "tile-element:128", "balanced:64", "tvw:64"])
def test_other_patterns_make_a_page(weights, pattern):
    table = predict(weights, gpu="h200-sxm", tokens=256, pattern=pattern, engine="model")
    assert "provenance" in outline(render_page(table, weights, gpu="h200-sxm")).sections


def test_measured_cases_are_shown_with_their_intervals(weights, table):
    points = [
        MeasuredPoint("inside <case>", "stspmm", 1e-5, 1.1e-5, 0.9e-5, 1.2e-5),
        MeasuredPoint("outside", "dense", 1e-5, 2e-5, 1.8e-5, 2.2e-5),
    ]
    page = render_page(table, weights, gpu="h200-sxm", measured=points)
    part = page.split('data-section="measured"')[1]
    assert "2 measured cases of recorded runs; 1 lie inside" in part
    assert 'data-tip="inside &lt;case&gt;, stspmm: measured 10 us, predicted 11 us"' in part
    assert 'data-section="measured"' not in render_page(table, weights, gpu="h200-sxm")


def test_full_sections_are_for_the_slowest_layer_of_each_shape():
    rng = np.random.default_rng(1)
    shapes = [(128 * (1 + i), 128) for i in range(MOST_STUDIED + 2)]
    weights = {f"{m}.{copy}": rng.standard_normal((m, k)) for m, k in shapes for copy in "ab"}
    table = predict(weights, gpu="h200-sxm", tokens=4096, engine="model", kernels="dense", crossovers=False)
    chosen = chosen_layers(table)
    assert len(chosen) == MOST_STUDIED
    assert len({rows[0].m for rows in chosen}) == MOST_STUDIED
    assert chosen[0][0].seconds == max(row.seconds for row in table)


def test_the_bundled_model_stays_below_two_megabytes():
    table = predict(BUNDLED, gpu="h200-sxm", tokens=4096, engine="model", ignore=("re:embed",))
    page = render_page(table, BUNDLED, gpu="h200-sxm")
    assert len(page.encode()) < 2_000_000


def test_a_file_that_cannot_be_written_is_bad_input(tmp_path):
    (tmp_path / "page.html").mkdir()
    with pytest.raises(BadInput, match="must be a file, got a folder"):
        write_text_aside(tmp_path / "page.html", "text")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_curves_of_a_convolution_pay_for_its_input():
    weights = {"c": np.random.default_rng(0).standard_normal((64, 64, 3, 3)).astype(np.float16)}
    settings = ConvSettings(input_size=("28x28",), batch=8)
    asked = {"gpu": "h200-sxm", "tokens": 1, "engine": "model", "kernels": ("dense", "stspmm")}
    table = predict(weights, convolutions=settings, **asked)
    engine = Engine(name="model", gpu=load_gpu("h200-sxm"))
    one = study(next(iter(table.layers())), table, load_layers(weights).layers["c"], engine)
    assert one.curves[0].points[0].seconds == pytest.approx(table[0].seconds, rel=1e-12)
    assert one.advice is None
    assert "Speedup over density" in render_page(table, weights, gpu="h200-sxm")


def test_a_model_by_name_leads_with_the_whole():
    asked = {"gpu": "h200-sxm", "workload": "decode:4@512", "engine": "model", "kernels": ["stspmm"]}
    table = predict("llama-3.2-1b", **asked)
    page = render_page(table, "llama-3.2-1b", gpu="h200-sxm")
    headline = re.search("<h1>(.*)</h1>", page)[1]
    assert headline.startswith("llama-3.2-1b, next token of 4 sequences, 512 cached tokens each, h200-sxm")
    assert f"{table.whole.speedup:.2f}x" in headline
    widths = [float(width) for width in re.findall(r'class="part-\w+" style="width:([0-9.]+)%"', page)]
    assert sum(widths) == pytest.approx(100 * (1 + 1 / table.whole.speedup), abs=0.1)


def test_layers_that_stay_dense_in_a_faster_pass_pay_for_nothing():
    table = predict("bert-small", gpu="h200-sxm", tokens=64, engine="model", runtime="torch")
    page = render_page(table, "bert-small", gpu="h200-sxm")
    (remark,) = table.whole.remarks
    assert f"Note: {remark}." in html.unescape(page)
    chosen = {line.dense.layer: line for line in summary_of(table)}
    dense = {name for name, kernel in table.whole.kernels.items() if kernel == "dense"}
    assert dense
    for name, line in chosen.items():
        assert line.best.kernel == table.whole.kernels[name]
        assert (line.verdict == "dense in this pass") == (
            name in dense and fastest(line.rows) is not line.dense
        )
    assert {chosen[name].sure for name in dense} == {"loss"}


def test_every_part_of_a_pass_has_a_colour():
    style = resources.files("prunecast.report").joinpath("report.css").read_text()
    colours = re.findall(r"\.part-(\w+) { background: (var\(--series-\d+\)); }", style)
    assert {name for name, _ in colours} == {part.split()[0] for part in (*PARTS, "other")}
    assert len({colour for _, colour in colours}) == len(colours)

"""`prunecast report`."""

import re
from dataclasses import replace

import pytest

from prunecast.codesign.interval import interval_s
from prunecast.validation.records import Measurement, RunWriter
from prunecast.validation.validate import replay
from tests.validation.tiny_run import CASE, HEADER


def test_it_writes_one_page(run, model, tmp_path):
    code, out, err = run("report", model, "-o", "page.html", "--tokens", 256, "--engine", "model")
    assert code == 0, err
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert re.fullmatch(rf"page\.html: \d\.\d\dx over dense, {len(page) / 1000:.0f} kB\n", out)
    assert page.startswith("<!DOCTYPE html>")
    assert "256 tokens, model, burst" in page
    assert "[bold]a[/].weight" in page.replace("<wbr>", "")
    assert "\x1b" not in page


def test_the_same_command_writes_the_same_bytes(run, model, tmp_path):
    for name in ("a.html", "b.html"):
        assert run("report", model, "-o", name, "--tokens", 256, "--engine", "model")[0] == 0
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_measured_times_of_a_record_are_shown_beside_their_predictions(run, model, tmp_path):
    """Rows with a wrong result, or without a time, are not shown."""
    writer = RunWriter(tmp_path / "run.csv", HEADER)
    row = Measurement(case=CASE, kernel="stspmm", seconds=3e-6)
    other = replace(row, case=replace(CASE, name="other", n=256))
    for each in (row, replace(other, marks=("wrong",)), replace(other, kernel="dense", seconds=None)):
        writer.add(each)
    writer.close()
    command = ("report", model, "-o", "page.html", "--tokens", 256, "--engine", "model")
    assert run(*command, "--measured", "run.csv")[0] == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    predicted = replay(["run.csv"], gpu="h200-sxm", engines=("model",)).rows[0].predicted["model"].seconds
    band = interval_s("stspmm", predicted, gpu="h200-sxm", engine="model", state="burst", tokens=128)
    inside = int(band.low_s <= 3e-6 <= band.high_s)
    assert f"1 measured case of recorded runs; {inside} lie inside" in page.replace("cases", "case")
    assert f"c, stspmm: measured 3 us, predicted {1e6 * predicted:.3g} us" in page
    assert "other, " not in page
    assert run(*command)[0] == 0
    assert "measured 3 us" not in (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("-o", "page.pdf"), "-o must name a .html or .htm file, got page.pdf"),
        (("-o", "no/page.html"), "-o must lie in a folder that exists"),
        (("--gpu", "h201"), "h201"),
    ],
)
def test_bad_input_writes_nothing(run, model, tmp_path, arguments, told):
    code, out, err = run("report", model, *arguments)
    assert (code, out) == (2, "")
    assert told in err
    assert not list(tmp_path.glob("*.html"))

"""`prunecast report`."""

import pytest


def test_it_writes_one_page(run, model, tmp_path):
    code, out, err = run("report", model, "-o", "page.html", "--tokens", 256, "--engine", "model")
    assert code == 0, err
    assert out.startswith("page.html: ")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert "256 tokens, model, burst" in page
    assert "[bold]a[/].weight" in page.replace("<wbr>", "")
    assert "\x1b" not in page


def test_the_same_command_writes_the_same_bytes(run, model, tmp_path):
    for name in ("a.html", "b.html"):
        assert run("report", model, "-o", name, "--tokens", 256, "--engine", "model")[0] == 0
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


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

import io

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from prunecast.cli.tables import Page


def printed(rows, *, terminal, width=100):
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=terminal, color_system=None)
    Page(console).table(rows, words=("layer",))
    return out.getvalue()


def row(name, us):
    return {"layer": name, "time us": us}


def test_cells_are_printed_as_they_are():
    text = printed([row("[red]x[/red]", "1.0"), row("a\x1b[31mb\r", "2.0")], terminal=False)
    assert "[red]x[/red]" in text
    assert "a\\x1b[31mb\\r" in text


@given(name=st.text(max_size=20))
def test_any_name_is_safe(name):
    out = io.StringIO()
    Page(Console(file=out, width=100)).say(f"[b]{name}")
    assert all(c.isprintable() for c in out.getvalue().replace("\n", ""))
    assert "[b]" in out.getvalue()


def test_without_a_terminal_there_are_no_drawn_lines():
    assert printed([row("a", "1.0")], terminal=False).isascii()
    assert "─" in printed([row("a", "1.0")], terminal=True)


def test_long_names_are_folded_and_numbers_are_not():
    text = printed([row("x" * 90, "123456.0")], terminal=False, width=40)
    assert max(len(line) for line in text.splitlines()) <= 40
    assert "123456.0" in text
    assert text.count("x") == 90

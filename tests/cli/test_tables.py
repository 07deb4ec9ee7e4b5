import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from prunecast.cli.tables import Column, aligned, grid, microseconds, percent, safe, significant

COLUMNS = (Column("layer"), Column("time us", number=True))


def printed(table_of, *, terminal, width=100):
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=terminal, color_system=None)
    console.print(table_of(console))
    return out.getvalue()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1234.5, "1234"),
        (123.45, "123"),
        (12.345, "12.3"),
        (1.2345, "1.23"),
        (0.012345, "0.0123"),
        (0, "0"),
        (4.7e-16, "0"),
        (7, "7"),
    ],
)
def test_three_digits(value, text):
    assert significant(value) == text


def test_units():
    assert microseconds(1.5e-6) == "1.50"
    assert percent(0.754) == "75.4"


def test_cells_are_printed_as_they_are():
    text = printed(
        lambda to: grid(COLUMNS, [["[red]x[/red]", "1.0"], ["a\x1b[31mb\r", "2.0"]], to=to), terminal=False
    )
    assert "[red]x[/red]" in text
    assert "a\\x1b[31mb\\r" in text


@given(name=st.text(max_size=20))
def test_any_name_is_safe(name):
    assert all(c.isprintable() for c in safe(name))


def test_without_a_terminal_there_are_no_drawn_lines():
    rows = [["a", "1.0"]]
    assert printed(lambda to: grid(COLUMNS, rows, to=to), terminal=False).isascii()
    assert "─" in printed(lambda to: grid(COLUMNS, rows, to=to), terminal=True)


def test_long_names_are_folded_and_numbers_are_not():
    text = printed(lambda to: grid(COLUMNS, [["x" * 90, "123456.0"]], to=to), terminal=False, width=40)
    assert max(len(line) for line in text.splitlines()) <= 40
    assert "123456.0" in text
    assert text.count("x") == 90


def test_aligned_lines():
    assert aligned(COLUMNS, [["a", "1.0"], ["long name", "10.0"]]) == [
        "layer      time us",
        "a              1.0",
        "long name     10.0",
    ]

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunecast.text import (
    gigabytes,
    microseconds,
    milliseconds,
    percent,
    printable,
    shortened,
    significant,
    table_html,
    table_text,
)

ROWS = [{"layer": "a", "time us": "1.0"}, {"layer": "long <name>", "time us": "10.0"}]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1234.5, "1234"),
        (123.45, "123"),
        (12.345, "12.3"),
        (1.2345, "1.23"),
        (0.012345, "0.0123"),
        (999.9, "1000"),
        (99.94, "99.9"),
        (9.994, "9.99"),
        (1.0, "1.00"),
        (0.99949, "0.999"),
        (-12.345, "-12.3"),
        (-0.012345, "-0.0123"),
        (1e-9, "1e-09"),
        (-1e-9, "-1e-09"),
        (0.999e-9, "0"),
        (-0.999e-9, "0"),
        (0.0, "0"),
        (0, "0"),
        (4.7e-16, "0"),
        (7, "7"),
        ("dram", "dram"),
    ],
)
def test_three_digits(value, text):
    assert significant(value) == text


def test_units():
    assert microseconds(1.5e-6) == "1.50"
    assert milliseconds(1.5e-3) == "1.50"
    assert percent(0.754) == "75.4"
    assert percent(1.0) == "100.0"
    assert percent(-0.0123) == "-1.2"


@pytest.mark.parametrize(
    ("size", "text"),
    [(141e9, "141"), (25.769e9, "25.8"), (1.256e9, "1.26"), (0.125e9, "0.12"), (12e6, "0.01"), (4e6, "0")],
)
def test_gigabytes_have_at_most_two_decimals(size, text):
    assert gigabytes(size) == text


@pytest.mark.parametrize(
    ("width", "text"),
    [(11, "hello world"), (10, "hell..orld"), (9, "hell..rld"), (8, "hel..rld"), (3, "h..")],
)
def test_long_names_lose_their_middle(width, text):
    assert shortened("hello world", width) == text


@given(name=st.text(max_size=20))
def test_any_name_can_be_printed(name):
    assert printable(name).isprintable()


def test_aligned_lines():
    assert table_text(ROWS, words=("layer",)).split("\n") == [
        "layer        time us",
        "a                1.0",
        "long <name>     10.0",
    ]


def test_a_table_of_one_row_has_headings():
    assert table_text([{"gpu": "h200-sxm", "ms": "1.0"}], words=("gpu",)).split("\n") == [
        "gpu        ms",
        "h200-sxm  1.0",
    ]


def test_html_escapes():
    assert "<td>long &lt;name&gt;</td>" in table_html(ROWS)

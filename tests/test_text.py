import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunecast.text import microseconds, percent, printable, significant, table_html, table_text

ROWS = [{"layer": "a", "time us": "1.0"}, {"layer": "long <name>", "time us": "10.0"}]


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
        ("dram", "dram"),
    ],
)
def test_three_digits(value, text):
    assert significant(value) == text


def test_units():
    assert microseconds(1.5e-6) == "1.50"
    assert percent(0.754) == "75.4"


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

"""Ticks of logarithmic axes: round numbers within the limits, and as few as can be read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunecast.axes import MOST_LABELS, in_thousands, log_axis, new_axes, new_figure, write_figure


def ticks(low, high, which="x"):
    axes = new_axes()
    log_axis(axes, which, low, high)
    axis = getattr(axes, f"{which}axis")
    assert not axis.get_minorticklocs().size
    return axis.get_majorticklocs().tolist(), axis.get_major_formatter()


@given(low=st.floats(1e-6, 1e6), decades=st.floats(0.3, 12.0))
def test_ticks_are_few_round_numbers_within_the_limits(low, decades):
    high = low * 10.0**decades
    found, _ = ticks(low, high)
    assert 1 <= len(found) <= MOST_LABELS
    assert found == sorted(set(found))
    assert low <= found[0] <= found[-1] <= high
    assert all(float(f"{tick:.2g}") == pytest.approx(tick, rel=1e-12) for tick in found)


@pytest.mark.parametrize("which", ["x", "y"])
@pytest.mark.parametrize(
    ("low", "high", "wanted"),
    [
        (1.0, 2.0, [1.0, 1.2, 1.5, 2.0]),
        (1.0, 1000.0, [1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0]),
        (0.1, 1.0, [0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0]),
    ],
)
def test_limits_that_are_round_have_ticks(low, high, wanted, which):
    """Each series of numbers is the densest one with at most seven labels."""
    found, text = ticks(low, high, which)
    assert found == pytest.approx(wanted)
    assert text(1e4) == "10,000"
    assert text(0.015) == "0.015"


@pytest.mark.parametrize(("highest", "title"), [(9_999, "tokens"), (10_000, "tokens, thousands")])
def test_an_axis_that_reaches_ten_thousand_shows_thousands(highest, title):
    axes = new_axes()
    axes.set_ylim(0, highest)
    in_thousands(axes, "tokens")
    assert axes.get_ylabel() == title
    shown = axes.yaxis.get_major_formatter()(8_500, 0)
    assert (shown == "8.5") == (highest >= 10_000)


def test_axes_of_a_part_write_the_whole_figure(tmp_path):
    figure = new_figure(4.0, 3.0)
    left, right = figure.subfigures(1, 2)
    right.add_subplot().set_title("right")
    axes = left.add_subplot()
    axes.set_title("left")
    write_figure(axes, tmp_path / "both.svg")
    assert "<!-- right -->" in (tmp_path / "both.svg").read_text()


def test_a_picture_in_a_notebook_has_the_pixels_of_its_file(tmp_path):
    """A PNG begins with 16 bytes, then width and height in pixels."""
    axes = new_axes(4.0, 3.0)
    write_figure(axes, tmp_path / "a.png")
    size = (400).to_bytes(4, "big") + (300).to_bytes(4, "big")
    assert (tmp_path / "a.png").read_bytes()[16:24] == axes.figure._repr_png_()[16:24] == size


def test_equal_figures_give_equal_bytes_without_dates_and_versions(tmp_path):
    for name in ("a.svg", "b.svg", "a.png", "b.png"):
        axes = new_axes()
        axes.fill([0.0, 1.0, 1.0], [0.0, 0.0, 1.0], clip_on=True)
        write_figure(axes, tmp_path / name)
    for suffix in ("svg", "png"):
        first, second = ((tmp_path / f"{name}.{suffix}").read_bytes() for name in "ab")
        assert first == second
        assert b"dc:date" not in first
        assert b"Software" not in first

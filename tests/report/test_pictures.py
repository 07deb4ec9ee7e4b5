"""Numbers behind the pictures."""

import matplotlib as mpl
import numpy as np
import pytest

from prunecast.axes import new_axes
from prunecast.codesign import predict
from prunecast.hardware import load_gpu
from prunecast.patterns import TileMap
from prunecast.patterns.tile_map import kept_in_bins
from prunecast.report import pictures
from prunecast.report.pictures import draw_crossover, draw_pareto, draw_tile_maps, speedup_range
from prunecast.report.study import Curve, CurvePoint, curves_of
from prunecast.workload.engines import Engine
from prunecast.workload.layers import load_layers


def test_bins_hold_the_share_of_kept_columns():
    tiles = TileMap(
        m=4, k=4, row_start=[0, 2, 4], row_index=[0, 1, 2, 3], column_start=[0, 1, 4],
        column_index=[2, 0, 1, 3], pattern="tile-wise:2",
    )  # fmt: skip
    np.testing.assert_array_equal(kept_in_bins(tiles), [[0, 0, 1, 0], [1, 1, 0, 1]])


def test_many_tiles_and_columns_share_bins_without_losing_any():
    t, k = 130, 1000
    tiles = TileMap(
        m=t, k=k, row_start=np.arange(t + 1), row_index=np.arange(t),
        column_start=np.arange(t + 1) * k, column_index=np.tile(np.arange(k), t), pattern="tile-wise:1",
    )  # fmt: skip
    shown = kept_in_bins(tiles)
    assert shown.shape == (64, 96)
    np.testing.assert_array_equal(shown, 1.0)


def test_curves_retain_what_single_weights_show():
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((128, 128)).astype(np.float16)}
    table = predict(weights, gpu="h200-sxm", tokens=128, engine="model", crossovers=False)
    engine = Engine(name="model", gpu=load_gpu("h200-sxm"))
    curves = {curve.kernel: curve for curve in curves_of(load_layers(weights).layers["w"], table[:], engine)}
    magnitude = np.sort(np.abs(weights["w"]).astype(np.float64), axis=None)
    point = next(p for p in curves["csr"].points if abs(p.density - 0.5) < 0.01)
    assert point.retained == pytest.approx(magnitude[magnitude.size // 2 :].sum() / magnitude.sum(), rel=1e-4)
    assert curves["dense"].points[0].retained == 1.0
    assert len(curves["2:4"].points) == 1


def curve(kernel, *seconds):
    points = tuple(CurvePoint(0.1 * place, each, 0.5) for place, each in enumerate(seconds, start=1))
    return Curve(kernel=kernel, pattern=kernel, points=points)


def test_a_kernel_that_is_far_slower_does_not_flatten_the_others():
    curves = [
        curve("dense", 1.0),
        curve("stspmm", 0.5, 0.8),
        curve("csr", 30.0, 90.0),
        curve("small-n", 1.0, 1.0, 1.0, 1.0, 1.0, 1.0),
    ]
    low, high = speedup_range(curves)
    assert low == pytest.approx(1 / 1.15)
    assert high == pytest.approx(1.15 * 2)
    picture = draw_crossover(curves, salt="a")
    assert "csr (below 0.4x)" in picture
    assert "csr, csr:" not in picture
    assert "stspmm, stspmm: density 10 %, 2.00x over dense" in picture
    assert "small-n, small-n: density 60 %, 1.00x over dense" in picture


def test_the_slowest_speedup_shown_is_within_the_axis():
    low, _ = speedup_range([curve("dense", 1.0), curve("csr", 2.5, 2.6)])
    assert low == pytest.approx(0.4 / 1.15)


def test_dense_alone_and_slower_kernels_have_a_range():
    low, high = speedup_range([curve("dense", 1.0), curve("csr", 30.0)])
    assert low < 1 < high


@pytest.fixture
def drawn(monkeypatch):
    """The axes of the pictures that a test draws."""
    found = []
    monkeypatch.setattr(pictures, "svg_text", lambda axes, label, *, salt: found.extend(axes.figure.axes))
    return found


def test_densities_of_a_crossover_begin_at_nothing_and_end_at_three_quarters(drawn):
    draw_crossover([curve("dense", 1.0), curve("stspmm", 0.5, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3)], salt="a")
    (axes,) = drawn
    assert axes.get_xlim() == (0.0, 75.0)


def test_points_of_a_crossover_are_those_of_at_least_the_slowest_speedup_shown(drawn):
    curves = [curve("dense", 1.0), curve("csr", 2.0, 2.5, 2.75), curve("stspmm", 0.5)]
    draw_crossover(curves, salt="a")
    (axes,) = drawn
    dots = [float(y) for line in axes.lines if line.get_linestyle() == "None" for y in line.get_ydata()]
    assert sorted(dots) == [0.4, 0.5, 2.0]


def test_bars_of_kept_columns_begin_at_zero_and_none_is_cut_off(drawn):
    tiles = TileMap(
        m=4, k=8, row_start=[0, 2, 4], row_index=[0, 1, 2, 3], column_start=[0, 1, 6],
        column_index=[2, 0, 1, 3, 4, 5], pattern="tile-wise:2",
    )  # fmt: skip
    draw_tile_maps(tiles, None, salt="a")
    bars = [axes for axes in drawn if axes.get_xlabel() == "kept"]
    assert [[bar.get_width() for bar in each.patches] for each in bars] == [[1.0, 5.0]]
    assert bars[0].get_xlim() == pytest.approx((0.0, 5.5))


def test_a_front_of_retained_importance_passes_through_the_best_of_all_kernels(drawn):
    curves = [
        Curve(
            kernel=kernel,
            pattern=kernel,
            points=tuple(CurvePoint(0.1, each, share) for each in seconds),
        )
        for kernel, share, *seconds in (
            ("dense", 1.0, 8e-6),
            ("stspmm", 0.6, 2e-6, 4e-6),
            ("csr", 0.5, 3e-6),
        )
    ]
    draw_pareto(curves, salt="a")
    (axes,) = drawn
    dots = [line for line in axes.lines if line.get_marker() == "o"]
    assert [float(x) for line in dots for x in line.get_xdata()] == pytest.approx([8.0, 2.0, 4.0, 3.0])
    assert [float(y) for line in dots for y in line.get_ydata()] == pytest.approx([100.0, 60.0, 60.0, 50.0])
    (front,) = (line for line in axes.lines if line.get_marker() == "None")
    assert [*front.get_xdata()] == pytest.approx([2.0, 8.0])
    assert [*front.get_ydata()] == pytest.approx([60.0, 100.0])
    assert axes.get_xlim() == pytest.approx((2.0 / 1.15, 8.0 * 1.15))
    assert axes.get_ylim() == (0, 105)
    assert dots[0].get_gid() == "tip:dense, dense: density 10 %, 8 us, 100.0 % of importance"


def test_measured_points_are_told_apart_by_kernel_and_inside_their_interval():
    point = pictures.MeasuredPoint("case", "csr", measured_s=2e-6, predicted_s=3e-6, low_s=2e-6, high_s=4e-6)
    assert point.inside
    assert point._replace(measured_s=4e-6).inside
    assert not point._replace(measured_s=1.99e-6).inside
    assert not point._replace(measured_s=4.01e-6).inside
    picture = pictures.draw_measured([point, point._replace(kernel="stspmm", case="other")], salt="a")
    assert "case, csr: measured 2 us, predicted 3 us" in picture
    assert "other, stspmm: measured 2 us, predicted 3 us" in picture


@pytest.mark.parametrize(("tiles", "bars"), [(64, 64), (65, 33)])
def test_counts_of_more_tiles_than_fit_are_means_of_neighbours(drawn, tiles, bars):
    kept = [1 + tile % 2 * 4 for tile in range(tiles)]
    many = TileMap(
        m=tiles, k=8, row_start=np.arange(tiles + 1), row_index=np.arange(tiles),
        column_start=np.concatenate([[0], np.cumsum(kept)]),
        column_index=np.concatenate([np.arange(count) for count in kept]), pattern="tile-wise:1",
    )  # fmt: skip
    draw_tile_maps(many, None, salt="a")
    (axes,) = (axes for axes in drawn if axes.get_xlabel() == "kept")
    widths = [bar.get_width() for bar in axes.patches]
    assert len(widths) == bars
    assert widths[:2] == ([1.0, 5.0] if bars == tiles else [3.0, 3.0])
    assert [*axes.lines[-1].get_xdata()] == pytest.approx([np.mean(kept)] * 2)
    assert axes.get_ylim() == (tiles - 0.5, -0.5)


def test_pictures_of_the_page_have_two_spines_no_frame_and_no_background():
    """The page gives the background, in light and in dark colours."""
    names = ("font.size", "axes.spines.top", "svg.fonttype", "figure.facecolor")
    before = [mpl.rcParams[name] for name in names]
    with pictures.drawing():
        axes = new_axes()
        axes.plot([1, 2], [1, 2], label="a")
        legend = axes.legend()
        visible = {name: spine.get_visible() for name, spine in axes.spines.items()}
        assert visible == {"left": True, "bottom": True, "top": False, "right": False}
        assert not legend.get_frame_on()
        assert axes.get_facecolor()[3] == axes.figure.get_facecolor()[3] == 0
        assert axes.yaxis.label.get_color() == axes.title.get_color() == pictures.PAGE.ink
        assert axes.title.get_fontsize() == axes.xaxis.label.get_fontsize() == 11
        assert legend.get_texts()[0].get_fontsize() == 10
        axes.set_xlim(1e-9, 2e-9)
        text = pictures.svg_text(axes, "label", salt="a")
    assert "<text" in text
    assert "mathdefault" not in text
    assert [mpl.rcParams[name] for name in names] == before

"""Pictures from the library: what they show is what was predicted."""

import io
import itertools
import subprocess
import sys

import numpy as np
import pytest
from matplotlib.colors import to_rgba

import prunecast
from prunecast.axes import in_thousands, log_axis, new_axes, write_figure
from prunecast.codesign import predict
from prunecast.codesign.pictures import plots
from prunecast.codesign.pictures.comparisons import (
    Series,
    draw_agreement,
    draw_bars,
    draw_front,
    draw_speedups,
)
from prunecast.codesign.pictures.palette import SCREEN
from prunecast.codesign.pictures.plots import RooflinePoint, draw_roofline
from prunecast.errors import BadInput
from prunecast.patterns import parse_pattern
from prunecast.simulator import STALLS


@pytest.fixture(scope="module")
def table():
    weights = {"<w&>": np.random.default_rng(0).standard_normal((256, 256)).astype(np.float16)}
    return predict(weights, gpu="h200-sxm", tokens=256, kernels=("dense", "stspmm"), crossovers=False)


def saved(axes):
    file = io.BytesIO()
    axes.figure.savefig(file, format="png")
    return file.getvalue()


def test_the_roofline_has_the_rate_of_the_prediction(table):
    row = table[1]
    axes = row.plot_roofline()
    rates = [float(y) for line in axes.lines if line.get_marker() == "o" for y in line.get_ydata()]
    assert axes.get_ylim()[0] < min(rates) <= max(rates) < axes.get_ylim()[1]
    useful = 2.0 * row.plan.m * row.plan.k * row.plan.n * row.plan.density
    assert rates == pytest.approx([useful / row.seconds / 1e12] * 2)  # DRAM and L2
    assert saved(axes)


def test_the_highest_of_several_arithmetic_ceilings_has_the_colour_of_text():
    weights = {"w": np.random.default_rng(0).standard_normal((256, 256)).astype(np.float16)}
    rows = predict(weights, gpu="h200-sxm", tokens=256, kernels=("dense", "balanced"), crossovers=False)
    points = [RooflinePoint(row.kernel, row.seconds, row.plan, row.result) for row in rows]
    axes = new_axes()
    draw_roofline(points, rows[0].gpu, axes)
    level = {line.get_ydata()[0]: line.get_color() for line in axes.lines if len({*line.get_ydata()}) == 1}
    ceilings = sorted(y for y in level if level[y] in (SCREEN.ink, SCREEN.faint))
    assert [level[y] for y in ceilings] == [SCREEN.faint, SCREEN.ink]


@pytest.mark.parametrize("gpu", ["h200-sxm", "a100-sxm4-80gb", "l40s", "b200"])
def test_names_of_ceilings_do_not_cover_each_other_or_another_ceiling(gpu):
    weights = {"w": np.random.default_rng(0).standard_normal((256, 256)).astype(np.float16)}
    asked = {"gpu": gpu, "tokens": 256, "engine": "model", "crossovers": False}
    rows = predict(weights, kernels=("dense", "balanced", "2:4"), **asked)
    axes = new_axes()
    draw_roofline(
        [RooflinePoint(row.kernel, row.seconds, row.plan, row.result) for row in rows], rows[0].gpu, axes
    )
    saved(axes)
    boxes = {text.xy[1]: text.get_window_extent() for text in axes.texts}
    assert len(boxes) >= 2
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes.values(), 2))
    for level, box in boxes.items():
        for other in boxes:
            height = axes.transData.transform((1.0, other))[1]
            assert not box.y0 < height < box.y1, (level, other)


@pytest.mark.parametrize(
    ("ratio", "places"), [(1.5, ["top", "bottom"]), (2.9, ["top", "bottom"]), (3.0, ["bottom", "bottom"])]
)
def test_names_of_ceilings_are_above_them_unless_the_next_one_is_closer_than_three_times(
    table, monkeypatch, ratio, places
):
    monkeypatch.setattr(plots, "_peaks", lambda *_: {"half": 512.0, "whole": ratio * 512.0})
    axes = table[1].plot_roofline()
    assert [text.get_text() for text in axes.texts] == ["half", "whole"]
    assert [text.get_va() for text in axes.texts] == places
    assert [text.xyann[1] for text in axes.texts] == [3 if place == "bottom" else -3 for place in places]


def test_points_of_a_roofline_have_their_flop_per_byte_and_ceilings_their_rates(table):
    row = table[1]
    axes = row.plot_roofline()
    dots = [line for line in axes.lines if line.get_marker() == "o"]
    work = 2.0 * row.plan.m * row.plan.k * row.plan.n * row.plan.density
    moved = [row.result.dram_bytes, row.result.l2_bytes]
    assert [float(x) for line in dots for x in line.get_xdata()] == pytest.approx([work / b for b in moved])
    assert [line.get_markerfacecolor() for line in dots] == [SCREEN.of(row.kernel), "none"]
    slopes = {line.get_label(): line for line in axes.lines if line.get_label() in ("DRAM", "L2")}
    peak = 2.0 * 132 * 1024 * row.result.clock_hz * 2 / 1e12
    for name, rate in (("DRAM", row.gpu.dram_bytes_per_s), ("L2", row.gpu.l2_bytes_per_s)):
        xs, ys = slopes[name].get_data()
        assert ys == pytest.approx([x * rate / 1e12 for x in xs])
        assert max(ys) == pytest.approx(peak)
        assert min(ys) == pytest.approx(axes.get_ylim()[0])
    (level,) = (
        line.get_ydata()[0]
        for line in axes.lines
        if len({*line.get_ydata()}) == 1 and len(line.get_ydata()) > 1
    )
    assert level == pytest.approx(peak)
    intensities = [float(x) for line in dots for x in line.get_xdata()]
    assert axes.get_xlim() == pytest.approx((min(intensities) / 3, 3 * max(*intensities, 1000.0)))
    assert axes.get_ylim() == pytest.approx((min(float(dots[0].get_ydata()[0]) / 3, peak / 30), 4 * peak))


def test_the_closed_form_moves_each_operand_once(table):
    weights = {"w": np.random.default_rng(0).standard_normal((256, 512)).astype(np.float16)}
    row = predict(weights, gpu="h200-sxm", tokens=128, engine="model", kernels="dense", crossovers=False)[0]
    (point,) = (line for line in row.plot_roofline().lines if line.get_marker() == "o")
    moved = 2 * (256 * 512 + 512 * 128 + 256 * 128)
    assert float(point.get_xdata()[0]) == pytest.approx(2 * 256 * 512 * 128 / moved, rel=0.01)


def test_the_bars_are_the_work_of_all_sms(table):
    row = table[1]
    axes = row.plot_work()
    work = row.result.sm_tensor_cycles
    heights = [bar.get_height() for bar in axes.patches]
    assert heights == sorted(work.tolist(), reverse=True)
    levels = [float(line.get_ydata()[0]) for line in axes.lines]
    assert levels == pytest.approx([work.mean(), work.max()])
    assert axes.get_ylim() == pytest.approx((0.0, 1.08 * work.max()))
    lost = [1e6 * row.result.attribution_s[name] for name in ("imbalance", "tail")]
    assert axes.get_title() == f"lost: imbalance {lost[0]:.2f} us, tail {lost[1]:.2f} us"


def test_every_activity_of_a_timeline_has_its_own_colour():
    assert set(plots._COLOURS) == {"tensor", "issuing", *STALLS}
    assert len(set(plots._COLOURS.values())) == len(plots._COLOURS)


@pytest.mark.parametrize(("layers", "title"), [(24, "GPU"), (25, "GPU, 24 of 25 layers")])
def test_a_figure_says_how_many_layers_it_leaves_out(layers, title):
    names = [f"l{place}" for place in range(layers)]
    for draw in (draw_bars, draw_speedups):
        (axes,) = draw(names, ["dense", "csr"], [[1.0, 2.0]] * layers, "GPU").axes
        assert axes.get_title(loc="left") == title
        assert len(axes.patches) == 2 * 24


@pytest.mark.parametrize(("slowest", "scale"), [(50.0, "linear"), (50.1, "log")])
def test_times_that_differ_by_more_than_ten_times_have_a_logarithmic_axis(slowest, scale):
    (axes,) = draw_bars(["a", "b"], ["dense", "csr"], [[5.0, None], [7.0, slowest]], "GPU").axes
    assert axes.get_yscale() == scale
    if scale == "log":
        assert axes.get_ylim() == pytest.approx((2.5, 2 * slowest))


def test_parts_of_a_time_have_a_linear_axis():
    (axes,) = draw_bars(["a", "b"], ["tile-wise"], [[0.1], [5.0]], "GPU", are_parts=True).axes
    assert axes.get_yscale() == "linear"
    assert axes.get_ylim()[0] == 0.0


def test_bars_of_a_group_lie_side_by_side_around_its_name():
    (axes,) = draw_bars(["a", "b"], ["dense", "csr", "2:4"], [[1.0, 2.0, None], [4.0, 5.0, 6.0]], "GPU").axes
    centres = sorted(bar.get_x() + bar.get_width() / 2 for bar in axes.patches)
    size = 0.85 / 3
    assert centres == pytest.approx([group + size * place for group in (0, 1) for place in (-1, 0, 1)])
    heights = {round(bar.get_x() + bar.get_width() / 2, 3): bar.get_height() for bar in axes.patches}
    assert [height for _, height in sorted(heights.items())] == pytest.approx(
        [1, 2, np.nan, 4, 5, 6], nan_ok=True
    )
    assert len({bar.get_facecolor() for bar in axes.patches}) == 3


def test_speedups_are_written_at_their_bars_and_the_first_layer_is_on_top():
    (axes,) = draw_speedups(["a", "b"], ["csr"], [[1.234], [None]], "GPU").axes
    assert [text.get_text() for text in axes.texts] == ["1.23x", ""]
    assert axes.get_ylim()[0] > axes.get_ylim()[1]
    (one,) = (line for line in axes.lines if [*line.get_xdata()] == [1.0, 1.0])
    assert one.get_color() == SCREEN.ink


def test_a_front_is_in_percent_of_dense_and_marks_what_was_found():
    (axes,) = draw_front([0.5, 0.75, 1.0], [0.6, 0.8, 1.0], (0.7, 0.77)).axes
    front, found = axes.lines
    assert [*front.get_xdata()] == [50.0, 75.0, 100.0]
    assert [*front.get_ydata()] == pytest.approx([60.0, 80.0, 100.0])
    assert (*found.get_xdata(), *found.get_ydata()) == pytest.approx((70.0, 77.0))


def test_agreement_has_a_line_of_equal_times_a_band_and_intervals():
    axes = new_axes()
    draw_agreement(
        [Series("a", "#1f6f8b", [2e-6, 6e-6], [3e-6, 6e-6], intervals_s=[(1e-6, 4e-6)])], axes, band=0.2
    )
    ends = (2 / 1.5, 6 * 1.5)
    assert axes.get_xlim() == axes.get_ylim() == pytest.approx(ends)
    equal, interval = axes.lines[:2]
    assert [*equal.get_xdata()] == [*equal.get_ydata()] == pytest.approx([*ends])
    assert ([*interval.get_xdata()], [*interval.get_ydata()]) == (
        pytest.approx([2, 2]),
        pytest.approx([1, 4]),
    )
    (band,) = axes.collections
    edges = {(round(float(x), 6), round(float(y / x), 6)) for x, y in band.get_paths()[0].vertices}
    assert edges == {(round(end, 6), share) for end in ends for share in (0.8, 1.2)}


FIGURES = {
    "roofline": lambda table: table[1].plot_roofline(),
    "agreement": lambda _: _agreement(),
}


def _agreement():
    axes = new_axes()
    draw_agreement([Series("a", "#1f6f8b", [1e-6], [1e-6])], axes)
    return axes


@pytest.mark.parametrize("name", FIGURES)
def test_axes_with_numbers_to_read_have_a_grid(table, name):
    axes = FIGURES[name](table)
    lines = [line for each in (axes.xaxis, axes.yaxis) for line in each.get_gridlines()]
    assert lines
    assert all(line.get_visible() for line in lines)


def test_the_timeline_shows_each_warp_of_the_sm(table):
    axes = table[1].plot_timeline()
    labels = [label.get_text() for label in axes.get_yticklabels()]
    warps = table[1].plan.resources.threads // 32
    assert sum(label.startswith("block 0 warp") for label in labels) == warps
    assert any(label.startswith("tensor") for label in labels)
    boxes = [path.get_extents() for bars in axes.collections for path in bars.get_paths()]
    assert 0 < max(box.x1 for box in boxes) <= table[1].latency_us
    last, first = axes.get_ylim()  # the first line is on top, and no bar is cut off
    assert first < min(box.y0 for box in boxes) <= 0
    assert len(labels) - 1 <= max(box.y1 for box in boxes) < last


def test_the_legend_of_a_timeline_explains_the_colours_of_its_bars(table):
    axes = table[1].plot_timeline()
    (legend,) = axes.figure.legends
    names = [text.get_text() for text in legend.texts]
    colours = [patch.get_facecolor() for patch in legend.legend_handles]
    assert colours == [to_rgba(plots._COLOURS[name]) for name in names]
    labels = [label.get_text() for label in axes.get_yticklabels()]
    drawn = {}
    for bars in axes.collections:
        (colour,) = {tuple(each) for each in bars.get_facecolor()}
        (middle,) = {(box.y0 + box.y1) / 2 for box in (path.get_extents() for path in bars.get_paths())}
        assert middle == pytest.approx(round(middle))
        drawn.setdefault(names[colours.index(colour)], set()).add(labels[round(middle)].split()[0])
    assert drawn.keys() == set(names)
    assert len(names) > 3
    assert {name for name, on in drawn.items() if "tensor" in on} == {plots.TENSOR}
    assert drawn[plots.TENSOR] == {"tensor"}


def test_the_timeline_is_of_the_conditions_of_the_prediction():
    weights = {"w": np.random.default_rng(0).standard_normal((512, 2048)).astype(np.float16)}
    ends = {}
    for l2 in ("cold", "warm"):
        row = predict(weights, gpu="h200-sxm", tokens=64, kernels=("dense",), l2=l2, crossovers=False)[0]
        axes = row.plot_timeline()
        ends[l2] = max(path.get_extents().x1 for bars in axes.collections for path in bars.get_paths())
        assert 0.5 * row.latency_us < ends[l2] <= row.latency_us
    assert ends["warm"] < 0.9 * ends["cold"]


def test_a_timeline_of_many_warps_has_room_for_their_names():
    weights = {"w": np.random.default_rng(0).standard_normal((4096, 1024)).astype(np.float16)}
    row = predict(weights, gpu="h200-sxm", tokens=1, kernels=("dense", "balanced"), crossovers=False)[1]
    axes = row.plot_timeline()
    saved(axes)
    boxes = [label.get_window_extent() for label in axes.get_yticklabels()]
    assert len(boxes) > 20
    assert all(upper.y0 >= lower.y1 for upper, lower in itertools.pairwise(boxes))


@pytest.mark.parametrize("ends", [(0.4, 1.3), (3.1, 72.0), (0.2, 3000.0), (1e-3, 1e6), (0.98, 1.01)])
def test_logarithmic_axes_have_a_few_plain_numbers(ends):
    axes = new_axes()
    log_axis(axes, "y", *ends)
    saved(axes)
    shown = [label.get_text() for label in axes.get_yticklabels()]
    assert 1 <= len(shown) <= 7
    values = [float(text.replace(",", "")) for text in shown]
    assert values == sorted(set(values))
    assert all(ends[0] <= value <= ends[1] for value in values)


@pytest.mark.parametrize(
    ("highest", "label", "shown"), [(9_000, "cycles", "8000"), (80_000, "cycles, thousands", "80")]
)
def test_large_counts_are_shown_in_thousands(highest, label, shown):
    axes = new_axes()
    axes.set_ylim(0, highest)
    in_thousands(axes, "cycles")
    saved(axes)
    assert axes.get_ylabel() == label
    assert shown in [text.get_text() for text in axes.get_yticklabels()]


def test_axes_that_are_given_are_drawn_on(table):
    from matplotlib.figure import Figure

    axes = Figure().add_subplot()
    assert table[0].plot_work(axes) is axes
    assert len(axes.patches) == 132  # SMs of the H200


def test_single_sms_are_simulated_where_a_closed_form_predicted(table):
    weights = {"w": np.ones((256, 256), np.float16)}
    row = predict(weights, gpu="a100-sxm4-80gb", tokens=64, engine="model", crossovers=False)[0]
    assert len(row.plot_work().patches) == 108  # SMs of the A100
    with pytest.raises(BadInput, match="sm must lie in 0 to"):
        row.plot_timeline(sm=10_000)


def test_a_tile_map_shows_what_it_keeps():
    weights = np.random.default_rng(0).standard_normal((64, 128)).astype(np.float32)
    pattern = parse_pattern("tile-wise:16")
    tiles = pattern.map(pattern.prune({"w": np.abs(weights)}, 0.5)["w"])
    axes = tiles.plot()
    shown = np.asarray(axes.images[0].get_array())
    assert shown.shape == (4, 96)
    assert axes.get_title() == tiles.pattern
    assert "4 tiles" in tiles._repr_html_()


def test_notebooks_escape_names(table):
    for text in (table._repr_html_(), table[0]._repr_html_()):
        assert "&lt;w&amp;&gt;" in text
        assert "<w&>" not in text
    assert table._repr_html_().count("<tr>") == 1 + len(table)


def test_predicting_loads_no_pictures():
    code = "import sys, prunecast.codesign, prunecast.patterns; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_tables_are_figures_and_html(tmp_path):
    """A bar for each layer and kernel; what a name holds is text, in HTML and in a figure."""
    rng = np.random.default_rng(0)
    layers = {name: rng.standard_normal((64, 64)).astype(np.float16) for name in ("<b>a$^2$", "b")}
    table = prunecast.predict(layers, gpu="h200-sxm", tokens=64, engine="model", crossovers=False)
    axes = table.plot().axes[0]
    sparse = [row for row in table if row.kernel != "dense"]
    drawn = sorted(bar.get_width() for bar in axes.patches if not np.isnan(bar.get_width()))
    assert drawn == sorted(row.speedup_over_dense for row in sparse)
    names = [label.get_text().splitlines()[0] for label in axes.get_yticklabels()]
    assert names == list(layers)
    width, _ = table.plot().get_size_inches() * 100
    assert width == 800
    table.plot().savefig(tmp_path / "t.png")
    settings = {"tokens": 64, "engine": "model", "kernels": ["stspmm"]}
    compared = prunecast.compare_gpus(layers, gpus=["h200-sxm", "a100-sxm4-80gb"], **settings)
    assert len(compared.plot().axes[0].patches) == 2 * len(compared.gpus)  # dense and pruned on each GPU
    assert compared._repr_html_().count("<tr>") == 1 + len(compared.gpus)
    assert len(str(compared).splitlines()) == 1 + len(compared.gpus)
    assert table.plot()._repr_png_().startswith(b"\x89PNG")


@pytest.mark.parametrize(("draw", "which"), [(draw_bars, "x"), (draw_speedups, "y")])
def test_names_of_layers_are_no_formulas(draw, which):
    (axes,) = draw(["a$^2$"], ["dense", "csr"], [[1.0, 2.0]], "GPU").axes
    (label,) = getattr(axes, f"get_{which}ticklabels")()
    assert label.get_text() == "a$^2$"
    assert not label.get_parse_math()


def test_a_table_of_dense_layers_is_drawn_as_times():
    table = prunecast.predict(np.ones((64, 64), np.float16), gpu="h200-sxm", kernels="dense", engine="model")
    (bar,) = table.plot().axes[0].patches
    assert bar.get_height() == pytest.approx(table[0].latency_us)


@pytest.mark.parametrize(("slow", "scale"), [(40.0, "linear"), (4000.0, "log")])
def test_a_slow_kernel_leaves_the_others_visible(slow, scale):
    (axes,) = draw_bars(["a"], ["dense", "csr"], [[5.0, slow]], "GPU").axes
    assert axes.get_yscale() == scale
    assert axes.get_legend() is None  # it is the figure's, beside the bars


def test_agreement_shows_every_row_in_microseconds_and_both_axes_alike(tmp_path):
    axes = new_axes()
    judge = Series("judge", "#1f6f8b", [1e-6, 4e-6], [2e-6, 3e-6], intervals_s=[(1e-6, 3e-6), (2e-6, 5e-6)])
    fit = Series("fit", "#d1603d", [8e-6], [8e-6], filled=False, tips=["tip:one"])
    draw_agreement([judge, fit], axes, band=0.1)
    points = {
        (x, y)
        for line in axes.lines
        if line.get_marker() == "o"
        for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)
    }
    assert points == {(1.0, 2.0), (4.0, 3.0), (8.0, 8.0)}
    faces = {line.get_label(): line.get_markerfacecolor() for line in axes.lines}
    assert (faces["judge"], faces["fit"]) == (judge.colour, "none")
    assert axes.get_xlim() == axes.get_ylim()
    assert [line.get_gid() for line in axes.lines if line.get_gid()] == ["tip:one"]
    first, second = tmp_path / "a.svg", tmp_path / "b.svg"
    write_figure(axes, first)
    write_figure(axes, second)
    assert b"<svg" in first.read_bytes()
    assert first.read_bytes() == second.read_bytes()
    write_figure(axes, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")

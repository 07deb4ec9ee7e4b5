"""Heat maps of a sweep."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from prunecast.codesign.sweep.pictures import (
    SpeedupGrid,
    draw_grid,
    speedup_grids,
    with_speedups,
    write_pictures,
)
from prunecast.errors import BadInput


def row(kernel, m, sparsity, seconds):
    pattern = "dense" if kernel == "dense" else "tile-wise:128"
    return {
        "gpu": "h200-sxm", "kernel": kernel, "pattern": pattern, "m": m, "k": 256, "n": 512,
        "sparsity": sparsity, "seconds": seconds,
        "dtype": "fp16", "engine": "model", "state": "burst", "launch": "graph",
    }  # fmt: skip


ROWS = [
    row("dense", 128, None, 4.0),
    row("dense", 64, None, 2.0),
    row("stspmm", 128, 0.5, 8.0),
    row("stspmm", 128, 0.875, 1.0),
    row("stspmm", 64, 0.5, 1.0),
    row("stspmm", 64, 0.875, None),
]


def test_grids_hold_speedups_small_shapes_first():
    (grid,) = speedup_grids(ROWS)
    assert grid.shapes == ("64x256x512", "128x256x512")
    assert grid.sparsities == (0.5, 0.875)
    np.testing.assert_array_equal(grid.speedups, [[2.0, np.nan], [0.5, 4.0]])


def test_a_speedup_is_over_the_dense_result_of_its_own_conditions():
    sustained = [{**row, "state": "sustained", "seconds": 3.0 * (row["seconds"] or 1.0)} for row in ROWS[:4]]
    for rows in (ROWS + sustained, sustained + ROWS):
        found = {
            (row["state"], row["m"], row["sparsity"]): row["speedup_over_dense"]
            for row in with_speedups(rows)
        }
        assert found["burst", 128, 0.5] == found["sustained", 128, 0.5] == 0.5
    assert with_speedups([ROWS[2], sustained[0]])[0]["speedup_over_dense"] is None


def test_shapes_of_one_size_have_one_order():
    rows = [
        row(kernel, m, 0.5, 1.0) | {"k": 2**14 // m} for kernel in ("dense", "stspmm") for m in (8, 32, 4, 16)
    ]
    assert [shape.split("x")[0] for shape in speedup_grids(rows)[0].shapes] == ["4", "8", "16", "32"]


def test_the_picture_says_what_each_cell_and_axis_is():
    axes = Figure().add_subplot()
    draw_grid(speedup_grids(ROWS)[0], axes)
    assert [text.get_text() for text in axes.texts] == ["2.00", "no", "0.50", "4.00"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["50", "87.5"]
    assert "M x K x N" in axes.get_ylabel()
    crossovers = [tuple(map(float, line.get_xdata())) for line in axes.lines]
    assert crossovers == [(-0.5, -0.5), (0.5, 0.5)]


@pytest.mark.parametrize("highest", [1.1, 1.15, 4.0])
def test_the_darkest_colours_are_the_highest_speedup_and_none_at_all(highest):
    (norm,) = (image.norm for image in drawn([[0.5, np.nan], [1.0, highest]]).images)
    assert norm([0.0, 1.0, highest]).tolist() == [0.0, 0.5, 1.0]


@pytest.mark.parametrize("highest", [np.nan, 0.5, 1.0, 1.05])
def test_small_gains_have_pale_colours(highest):
    (norm,) = (image.norm for image in drawn([[0.25, highest]]).images)
    assert norm(1.0) == 0.5
    assert norm(1.05) == pytest.approx(0.75)


def drawn(speedups):
    rows, columns = np.shape(speedups)
    names, sparsities = tuple(map(str, range(rows))), tuple(np.arange(columns) / columns)
    axes = Figure().add_subplot()
    draw_grid(SpeedupGrid("h200-sxm", "csr", "unstructured", names, sparsities, np.array(speedups)), axes)
    return axes


def test_a_file_for_each_kernel(tmp_path):
    (file,) = write_pictures(ROWS, tmp_path / "pictures")
    assert file.name == "h200-sxm-stspmm-tile-wise_128.svg"
    assert "<svg" in file.read_text(encoding="utf-8")
    with pytest.raises(BadInput, match="there is none"):
        write_pictures(ROWS[:2], tmp_path)


def test_numbers_are_white_on_dark_cells_black_on_pale_ones_and_grey_without_a_result():
    axes = drawn([[0.0, 0.29, 0.31, 1.0, 3.09, 3.11, 4.0, np.nan]])
    colours = [text.get_color() for text in axes.texts]
    assert colours == ["white", "white", "black", "black", "black", "white", "white", "0.35"]


@pytest.mark.parametrize(("columns", "numbered"), [(12, True), (13, False)])
def test_cells_of_up_to_12_columns_have_numbers(columns, numbered):
    assert bool(drawn([[1.5] * columns]).texts) == numbered


def test_a_crossover_is_the_first_column_that_is_faster_than_dense():
    axes = drawn([[0.5, 1.0, 1.01, 0.9], [np.nan, np.nan, 0.3, 1.0], [1.2, 0.3, 2.0, np.nan]])
    lines = [(*map(float, line.get_xdata()), *map(float, line.get_ydata())) for line in axes.lines]
    assert lines == [(1.5, 1.5, -0.5, 0.5), (-0.5, -0.5, 1.5, 2.5)]

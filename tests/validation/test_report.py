import dataclasses

import pytest

from prunecast.validation.report import write_report
from prunecast.validation.report.boards import board_spreads
from prunecast.validation.report.causes import cause_of
from prunecast.validation.report.choices import choices, crossings
from prunecast.validation.report.groups import grouped
from tests.validation.judged_rows import judged_row, validation_of


def test_groups_are_in_order_and_keep_errors_apart():
    rows = [
        judged_row(10, 11, sparsity=0.9),
        judged_row(10, 9, sparsity=0.5),
        judged_row(20, 22, sparsity=0.9),
    ]
    found = grouped(rows, "sparsity", "simulator")
    assert [group.label for group in found] == ["30 to 60 %", "80 to 95 %"]
    assert [group.summary.cases for group in found] == [1, 2]
    assert found[1].summary.bias == pytest.approx(0.1)


def test_regret_is_what_the_wrong_choice_costs():
    rows = [
        judged_row(12, 10, kernel="stspmm"),
        judged_row(10, 11, kernel="tile-wise"),
        judged_row(15, 15, kernel="dense", pattern="dense", sparsity=0.0),
    ]
    (choice,) = choices(rows, "simulator")
    assert choice.chosen.startswith("stspmm")
    assert choice.fastest.startswith("tile-wise")
    assert choice.regret == pytest.approx(0.2)


def test_crossover_lies_where_sparse_takes_as_long_as_dense():
    rows = [
        judged_row(100, 100, kernel="dense", pattern="dense", sparsity=0.0),
        judged_row(60, 50, sparsity=0.5),
        judged_row(110, 110, sparsity=0.0),
    ]
    (found,) = crossings(rows, "simulator")
    # Measured: 0.6 at density 0.5 and 1.1 at 1; predicted 0.5 and 1.1.
    assert found.measured == pytest.approx(0.5 + 0.5 * 0.4 / 0.5)
    assert found.predicted == pytest.approx(0.5 + 0.5 * 0.5 / 0.6)


def test_a_clock_that_is_off_is_named_and_so_are_cycles():
    slow_clock = judged_row(100, 112.5, clock=(1800, 1600))
    assert cause_of(slow_clock, "simulator").startswith("clock: clock 1600 for 1800 MHz")
    cycles = judged_row(100, 80, n=16)
    assert cause_of(cycles, "simulator") == "cycles -20 %, bound by tensor, few tokens"


def test_boards_are_compared_only_where_several_ran_a_row():
    row = judged_row(10, 10)
    rows = [judged_row(20, 20)]
    for boards in ((1.0, 1.1), (1.2, 1.0, 1.1), (1.0, 1.3)):
        measured = dataclasses.replace(row.measured, board_seconds=boards)
        rows.append(dataclasses.replace(row, measured=measured))
    (found,) = board_spreads(rows)
    assert (found.kernel, found.rows) == ("stspmm", 3)
    assert found.runs == pytest.approx(7 / 3)
    assert (found.middle, found.p90) == pytest.approx((0.2, 0.3))


def test_the_page_is_written_with_its_figures(tmp_path):
    rows = [judged_row(10 + i, 11 + i, use=use) for i in range(5) for use in ("fit", "judge")]
    page = tmp_path / "validation.md"
    write_report(validation_of(*rows), page)
    text = page.read_text()
    assert "| stspmm | burst | simulator | 5 |" in text
    assert "![stspmm](validation/stspmm.png)" in text
    assert (tmp_path / "validation" / "stspmm.png").stat().st_size > 1000

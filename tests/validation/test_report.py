import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

from prunecast.validation.records import RunWriter
from prunecast.validation.report import write_report
from prunecast.validation.report.groupings import GROUPINGS, grouped
from prunecast.validation.report.sections import (
    Bound,
    board_spreads,
    cause_of,
    choices,
    crossings,
    suite_errors,
)
from tests.validation.judged_rows import judged_row, validation_of
from tests.validation.tiny_run import HEADER


def test_groups_are_in_order_and_keep_errors_apart():
    rows = [
        judged_row(10, 11, sparsity=0.9),
        judged_row(10, 9, sparsity=0.5),
        judged_row(20, 22, sparsity=0.9),
    ]
    found = grouped(rows, "sparsity", "simulator")
    assert list(found) == ["30 to 60 %", "80 to 95 %"]
    assert [summary.cases for summary in found.values()] == [1, 2]
    assert found["80 to 95 %"].bias == pytest.approx(0.1)


LIMITS = {
    "sparsity": [0.0, 0.3, 0.6, 0.8, 0.95, 1.0],
    "imbalance (heaviest tile over mean)": [1.0, 1.02, 1.3, 2.0, 4.0, np.inf],
    "measured time": [0.0, 5e-6, 15e-6, 50e-6, 200e-6, np.inf],
    "tokens": [1, 65, 513, 4097, np.inf],
}
"""Least number of each group, and the largest number that a row can have."""


def row_with(grouping, number):
    if grouping == "sparsity":
        return judged_row(10, 10, sparsity=number)
    if grouping == "tokens":
        return judged_row(10, 10, n=number)
    if grouping == "measured time":
        row = judged_row(10, 10)
        return dataclasses.replace(row, measured=dataclasses.replace(row.measured, seconds=number))
    return dataclasses.replace(judged_row(10, 10), imbalance=number)


@pytest.mark.parametrize("grouping", GROUPINGS)
def test_groups_begin_at_their_limits_and_the_last_one_holds_the_largest(grouping):
    labels = [label for label, _ in GROUPINGS[grouping].bins]
    *firsts, most = LIMITS[grouping]
    lasts = [np.nextafter(limit, 0) if isinstance(limit, float) else limit - 1 for limit in firsts[1:]]
    for label, first, last in zip(labels, firsts, [*lasts, most], strict=True):
        for number in (first, last):
            if 0 < number < np.inf or grouping == "sparsity":
                assert list(grouped([row_with(grouping, number)], grouping, "simulator")) == [label]


@pytest.mark.parametrize("grouping", GROUPINGS)
def test_labels_of_groups_name_their_limits(grouping):
    """Numbers in the label of a group are its least and its largest number, as people write them."""
    *firsts, _ = LIMITS[grouping]
    scale = {"sparsity": 100, "measured time": 1e6}.get(grouping, 1)
    named = [[float(each) for each in re.findall(r"[\d.]+", label)] for label, _ in GROUPINGS[grouping].bins]
    for numbers, above in zip(named[1:-1], firsts[2:], strict=True):
        largest = above - 1 if grouping == "tokens" else scale * above
        assert numbers[-1] == pytest.approx(largest)


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
    assert found.measured.density == pytest.approx(0.5 + 0.5 * 0.4 / 0.5)
    assert found.predicted.density == pytest.approx(0.5 + 0.5 * 0.5 / 0.6)
    assert found.points == pytest.approx(100 * (0.5 * 0.5 / 0.6 - 0.5 * 0.4 / 0.5))
    assert not found.beyond


def sides_of_dense(*times):
    """Rows of a layer whose dense product takes 100 us: measured and predicted at densities 0.3, 0.9."""
    dense = judged_row(100, 100, kernel="dense", pattern="dense", sparsity=0.0)
    return [dense, *(judged_row(*time, sparsity=s) for time, s in zip(times, (0.7, 0.1), strict=True))]


def test_a_curve_that_does_not_meet_dense_is_a_miss_and_not_left_out():
    (above,) = crossings(sides_of_dense((50, 50), (110, 99)), "simulator")
    assert above.predicted == Bound(pytest.approx(0.9), 1)
    assert above.beyond
    assert above.points == pytest.approx(100 * (0.9 - above.measured.density))
    (below,) = crossings(sides_of_dense((101, 50), (150, 150)), "simulator")
    assert below.measured == Bound(pytest.approx(0.3), -1)
    (both,) = crossings(sides_of_dense((101, 50), (150, 90)), "simulator")
    assert str(both.measured) == "below 0.300"
    assert str(both.predicted) == "above 0.900"


def test_a_layer_on_which_neither_curve_meets_dense_says_nothing():
    assert crossings(sides_of_dense((50, 50), (90, 99)), "simulator") == []
    assert crossings(sides_of_dense((101, 102), (150, 150)), "simulator") == []


def test_the_page_says_how_far_crossovers_are_off_and_which_are_missed(tmp_path):
    rows = sides_of_dense((50, 50), (110, 99))
    other = [dataclasses.replace(row, measured=_of_layer(row.measured, 512)) for row in rows]
    met = [dataclasses.replace(row, predicted=near) for row, near in zip(other, _met(), strict=True)]
    page = tmp_path / "validation.md"
    write_report(validation_of(*rows, *met), page)
    text = page.read_text()
    assert "| 1024x1024x1024 fp16 | simulator | 0.800 | above 0.900 | +10.0 (1) |" in text
    assert "| 512x1024x1024 fp16 | simulator | 0.800 | 0.800 | +0.0 |" in text
    assert "simulator: 5.0 points off in the mean, 1 of 2 within 3 points." in text


def _met():
    return [judged_row(100, us).predicted for us in (100, 50, 110)]


def _of_layer(measured, rows):
    return dataclasses.replace(measured, case=dataclasses.replace(measured.case, m=rows))


def test_a_clock_that_is_off_is_named_and_so_are_cycles():
    slow_clock = judged_row(100, 112.5, clock=(1800, 1600))
    assert cause_of(slow_clock, "simulator").startswith("clock: clock 1600 for 1800 MHz")
    cycles = judged_row(100, 80, n=16)
    assert cause_of(cycles, "simulator") == "cycles -20 %, bound by tensor, few tokens"


def causes(*us, **changes):
    """Parts of the line about a row of these times in us, predicted with the clock that was measured."""
    measured = {name: changes.pop(name) for name in ("spread",) if name in changes}
    own = {name: changes.pop(name) for name in ("imbalance",) if name in changes}
    row = judged_row(*us, **changes)
    row = dataclasses.replace(row, measured=dataclasses.replace(row.measured, **measured), **own)
    return cause_of(row, "simulator").split(", ")


def test_the_cause_of_an_error_has_the_properties_of_the_case_from_their_limits_on():
    assert causes(100, 110) == ["cycles +10 %", "bound by tensor"]
    assert causes(100, 110, imbalance=1.3)[2:] == []
    assert causes(100, 110, imbalance=1.31)[2:] == ["imbalance 1.3"]
    assert causes(100, 110, n=64)[2:] == []
    assert causes(100, 110, n=63)[2:] == ["few tokens"]
    assert causes(5.01, 6)[2:] == []
    assert causes(4.99, 6)[2:] == ["launch and start weigh"]
    assert causes(100, 110, spread=0.049)[2:] == []
    assert causes(100, 110, spread=0.051)[2:] == ["samples spread by 5 %"]


@pytest.mark.parametrize(
    ("clock", "us", "is_clock"),
    [
        ((1600, 1600), 110, False),
        ((1680, 1600), 111, False),  # 5 of 10 %: less than half
        ((1690, 1600), 111, True),  # 5.5 of 10.4 %
        ((1500, 1600), 111, False),  # a clock that is too high makes a time too short
        ((1500, 1600), 92, True),
    ],
)
def test_the_clock_is_the_cause_if_it_explains_more_than_half_of_the_error(clock, us, is_clock):
    row = judged_row(100, us, clock=clock)
    found = cause_of(row, "simulator")
    assert (found == f"clock: clock {clock[1]} for {clock[0]} MHz") == is_clock
    if not is_clock:
        assert f"cycles {100 * (us / 100 * clock[1] / clock[0] - 1):+.0f} %" in found


def test_boards_are_compared_only_where_several_ran_a_row():
    row = judged_row(10, 10)
    rows = [judged_row(20, 20)]
    for boards in ((1.0, 1.1), (1.2, 1.0, 1.1), (1.0, 1.3)):
        measured = dataclasses.replace(row.measured, board_seconds=boards)
        rows.append(dataclasses.replace(row, measured=measured))
    (found,) = board_spreads(rows)
    assert (found.group.kernel, found.rows) == ("stspmm", 3)
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


def test_suites_are_told_apart_where_there_are_several(tmp_path):
    rows = [judged_row(10, 11), judged_row(20, 20), judged_row(30, 27, kernel="dense", pattern="dense")]
    records = []
    for name, own in (("first", rows[:1]), ("second", rows[1:])):
        records.append(str(tmp_path / f"{name}.csv"))
        writer = RunWriter(Path(records[-1]), dataclasses.replace(HEADER, suite=name))
        for row in own:
            writer.add(row.measured)
        writer.close()
    found = suite_errors(rows, records, "simulator")
    assert [(*key, summary.cases) for key, summary in found.items()] == [
        ("first", "stspmm", 1),
        ("second", "dense", 1),
        ("second", "stspmm", 1),
    ]
    assert [summary.bias for summary in found.values()] == pytest.approx([0.1, -0.1, 0.0])
    assert suite_errors(rows[:1], records[:1], "simulator") == {}


def section_of(page, title):
    """Cells of the lines of a section's first table, without its head."""
    lines = page.partition(f"## {title}\n")[2].partition("\n## ")[0].splitlines()
    table = [line for line in lines if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:]]


def measured(row, **changes):
    return dataclasses.replace(row, measured=dataclasses.replace(row.measured, **changes))


def test_groups_and_the_worst_rows_are_of_cases_to_judge(tmp_path):
    """Only tokens and measured times are compared with those of dense products."""
    own, longer = judged_row(10, 11, sparsity=0.5, n=16), judged_row(100, 90, sparsity=0.9, n=1024)
    dense = judged_row(300, 360, kernel="dense", pattern="dense", sparsity=0.0, n=1024)
    others = [judged_row(10, 20, use="fit"), dataclasses.replace(judged_row(10, 30), same_plan=False)]
    write_report(validation_of(own, *others, dense, longer), tmp_path / "page.md")
    page = (tmp_path / "page.md").read_text()
    tiles = "own tile kernels", "simulator"
    assert section_of(page, "By sparsity") == [
        [*tiles, "30 to 60 %", "1", "10.0 %", "+10.0 %"],
        [*tiles, "80 to 95 %", "1", "10.0 %", "-10.0 %"],
    ]
    assert section_of(page, "By tokens") == [
        [*tiles, "1 to 64", "1", "10.0 %", "+10.0 %"],
        [*tiles, "513 to 4096", "1", "10.0 %", "-10.0 %"],
        ["dense", "simulator", "513 to 4096", "1", "20.0 %", "+20.0 %"],
    ]
    assert [line[:3] for line in section_of(page, "By measured time")] == [
        [*tiles, "5 to 15 us"],
        [*tiles, "50 to 200 us"],
        ["dense", "simulator", "200 us and more"],
    ]
    worst = [(name, us, error) for name, *_, us, error, _ in section_of(page, "The worst ten (simulator)")]
    assert worst == [
        (dense.case.name, "300.0", "+20 %"),
        *sorted([(own.case.name, "10.0", "+10 %"), (longer.case.name, "100.0", "-10 %")]),
    ]


def test_rows_that_do_not_count_are_left_out_with_their_reasons(tmp_path):
    counted = judged_row(10, 11)
    rows = [
        counted,
        dataclasses.replace(judged_row(20, 22), same_plan=False),
        measured(judged_row(30, 33), marks=("throttled",)),
        *(measured(judged_row(us, us), marks=("wrong", "spread")) for us in (40, 41, 42)),
        *(measured(judged_row(us, us), seconds=None, marks=("skipped: no kernel",)) for us in (50, 51)),
        dataclasses.replace(judged_row(60, 66), same_plan=False, predicted={}, note="unknown pattern"),
    ]
    write_report(validation_of(*rows), tmp_path / "page.md")
    found = section_of((tmp_path / "page.md").read_text(), "Left out")
    assert found[:2] == [["wrong; spread", "3"], ["skipped: no kernel", "2"]]
    assert sorted(found[2:]) == [
        ["not counted: measured with another plan than this version's", "1"],
        ["not counted: throttled", "1"],
        ["not counted: unknown pattern", "1"],
    ]
    write_report(validation_of(counted), tmp_path / "page.md")
    assert "## Left out" not in (tmp_path / "page.md").read_text()

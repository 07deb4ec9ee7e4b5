import dataclasses

import pytest

from prunecast.kernels import KERNELS
from prunecast.kernels.kernel import Sources
from prunecast.validation import builds
from prunecast.validation.builds import build_of, source_digest
from prunecast.validation.records import Measurement, Run, read_runs
from prunecast.validation.validate import bundled_records, merge_rows
from tests.validation.tiny_run import CASE, HEADER

ROW = Measurement(case=CASE, kernel="stspmm", seconds=2e-6, clock_mhz=1600.0, samples=7, plan="p")


def run(*rows, **versions):
    return Run(header=dataclasses.replace(HEADER, versions={"commit": "c"} | versions), rows=rows)


def timed(seconds, **changes):
    return dataclasses.replace(ROW, seconds=seconds, **changes)


def test_runs_of_one_plan_and_build_count_with_their_geometric_mean():
    (row,) = merge_rows([run(timed(2e-6)), run(timed(8e-6, clock_mhz=1700.0))])
    assert row.seconds == pytest.approx(4e-6)
    assert row.clock_mhz == 1650.0
    assert row.board_seconds == (2e-6, 8e-6)
    assert row.board_spread == pytest.approx(3.0)
    assert row.samples == 14


@pytest.mark.parametrize(
    "older",
    [
        run(timed(2e-6, plan="another")),
        run(timed(2e-6, marks=("wrong",))),
        run(timed(2e-6), tile_sources="other sources"),
        run(timed(2e-6), cuda="12080"),
    ],
)
def test_another_plan_build_or_a_wrong_result_does_not_count(older):
    newest = timed(8e-6)
    assert merge_rows([older, run(newest)]) == (newest,)


def test_a_newest_row_that_is_wrong_stands_alone():
    wrong = timed(8e-6, marks=("wrong",))
    assert merge_rows([run(ROW), run(wrong)]) == (wrong,)


def test_a_skip_does_not_count():
    skipped = timed(None, marks=("skipped: no kernel",))
    assert merge_rows([run(ROW), run(skipped)]) == (ROW,)
    assert merge_rows([run(skipped), run(ROW)]) == (ROW,)


def test_builds_are_told_by_digests_of_sources_and_else_by_the_tree():
    told = ({"tile_sources": "a"}, {"tile_sources": "a", "commit": "d"}, {"commit": "d"}, {})
    builds = [build_of(run(**versions).header, "stspmm", ROW.case) for versions in told]
    assert builds[0] == builds[1]
    assert len(set(builds)) == 3


def test_libraries_are_told_by_their_version_and_not_by_the_tree():
    old, same, new = (
        build_of(run(commit=commit, cublas=cublas).header, "dense", ROW.case)
        for commit, cublas in (("a", "1"), ("b", "1"), ("b", "2"))
    )
    assert old == same != new


def test_sources_that_compile_to_the_same_cubins_are_one_build(monkeypatch):
    monkeypatch.setattr(builds, "_known_cubins", lambda: {"tile": {"a": "same", "b": "same"}})
    old, new, other = (
        build_of(run(tile_sources=digest).header, "stspmm", ROW.case) for digest in ("a", "b", "c")
    )
    assert old == new != other


def test_known_cubins_are_of_kernels_that_there_are():
    names = {kernel.sources.name for kernel in KERNELS.values() if kernel.sources}
    assert set(builds._known_cubins()) <= names


def test_programs_describe_the_sources_that_all_bundled_records_measured():
    """The first ones of each section: who records others describes those in programs and costs first."""
    headers = [run.header.versions for path in bundled_records() for run in read_runs(path)]
    for name, known in builds._known_cubins().items():
        measured = {versions[f"{name}_sources"] for versions in headers if f"{name}_sources" in versions}
        assert measured == {next(iter(known))}


def test_a_digest_is_of_the_own_sources_and_of_the_shared_ones(tmp_path):
    small, tile = Sources("small", ("device", "small_n")), Sources("tile", ("device", "tile"))
    files = [tmp_path / name for name in ("device/ptx.cuh", "small_n/small.cu", "small_n/note.py")]
    for file in files:
        file.parent.mkdir(exist_ok=True)
        file.write_text("a")
    shared, own, other = files
    before = {sources: source_digest(sources, tmp_path) for sources in (tile, small)}
    other.write_text("b")
    assert source_digest(small, tmp_path) == before[small]
    own.write_text("b")
    assert source_digest(small, tmp_path) != before[small]
    assert source_digest(tile, tmp_path) == before[tile]
    shared.write_text("b")
    assert source_digest(tile, tmp_path) != before[tile]


@pytest.mark.parametrize(
    ("tokens", "kernel", "same"), [(16, "stspmm", True), (12, "stspmm", False), (12, "small-n", True)]
)
def test_the_way_of_copies_tells_builds_apart_where_rows_are_copied(tokens, kernel, same):
    case = dataclasses.replace(CASE, n=tokens)
    old, new = (build_of(run(**told).header, kernel, case) for told in ({}, {"copies": "in words"}))
    assert (old == new) is same

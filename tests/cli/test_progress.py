import time

from prunecast.cli import progress
from prunecast.cli.progress import ProgressLines


def test_short_work_is_silent(capsys):
    with ProgressLines() as tell:
        for done in range(100):
            tell("predicting", done, 100)
    assert capsys.readouterr().err == ""


def test_long_work_is_told_once_in_a_while(capsys, monkeypatch):
    monkeypatch.setattr(progress, "DELAY_S", 0.0)
    with ProgressLines() as tell:
        for done in range(50):
            tell("predicting", done, 50)
        tell("finding crossovers", 0, 1)
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if line.startswith("prunecast: predicting: ")]
    assert lines[-1] == "prunecast: finding crossovers"
    assert len(lines) <= 3


def test_a_stage_that_says_nothing_more_is_told_by_itself(capsys, monkeypatch):
    monkeypatch.setattr(progress, "DELAY_S", 0.01)
    with ProgressLines() as tell:
        tell("compiling the simulator (first run only)", 0, 1)
        deadline = time.monotonic() + 10
        err = ""
        while not err and time.monotonic() < deadline:
            time.sleep(0.01)
            err = capsys.readouterr().err
    assert err == "prunecast: compiling the simulator (first run only)\n"


def test_the_time_left_is_told_where_it_is_asked_for(capsys, monkeypatch):
    monkeypatch.setattr(progress, "DELAY_S", 0.0)
    monkeypatch.setattr(progress, "SECONDS_PER_LINE", 0.0)
    seconds = iter(float(second) for second in range(1000))
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(seconds))
    with ProgressLines(time_left=True) as tell:
        tell._cancel = lambda: None
        for done in (20, 30):
            tell("trials", done, 50)
    lines = capsys.readouterr().err.splitlines()
    assert "prunecast: trials: 20 of 50" in lines
    assert any(
        line.startswith("prunecast: trials: 30 of 50, ") and line.endswith(" s left") for line in lines
    )

import itertools
import os
import subprocess
import sys
import threading

import pytest

from prunecast.cli import progress
from prunecast.cli.progress import PROGRESS, ProgressLines
from prunecast.errors import BadInput
from prunecast.files import cut


def stopped_clock():
    return 0.0


def test_short_work_is_silent(capsys):
    with ProgressLines(delay_s=1000.0, clock=stopped_clock) as tell:
        for done in range(100):
            tell("predicting", done, 100)
    assert capsys.readouterr().err == ""


def test_long_work_is_told_once_in_a_while(capsys):
    seconds = itertools.count(step=0.1)
    with ProgressLines(delay_s=2.0, clock=lambda: next(seconds)) as tell:
        for done in range(50):
            tell("predicting", done, 50)
        tell("finding crossovers", 0, 1)
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if line.startswith("prunecast: predicting: ")]
    assert len(lines) <= 3


class TimersByHand:
    """Timers that fire when a test says so; replaces `threading.Timer`."""

    def __init__(self):
        self.waiting = []

    def __call__(self, delay_s, function):
        self.delay_s, self.function, self.daemon = delay_s, function, False
        return self

    def start(self):
        self.waiting.append((self.delay_s, self.function))

    def cancel(self):
        pass


def test_a_stage_without_further_calls_is_printed_every_five_seconds(capsys, monkeypatch):
    timers, now = TimersByHand(), [0.0]
    monkeypatch.setattr(progress.threading, "Timer", timers)
    with ProgressLines(delay_s=2.0, clock=lambda: now[0]) as tell:
        timers.waiting.clear()
        tell("predicting", 0, 9)
        for _ in range(3):
            delay_s, function = timers.waiting.pop()
            now[0] += delay_s
            function()
        tell("predicting", 1, 9)
        delay_s, function = timers.waiting.pop()
        now[0] += delay_s
        function()
    assert capsys.readouterr().err.splitlines() == [
        "prunecast: predicting: 0 of 9",
        "prunecast: predicting: 0 of 9, for 7 s",
        "prunecast: predicting: 0 of 9, for 12 s",
        "prunecast: predicting: 1 of 9",
    ]
    _, function = timers.waiting.pop()
    function()
    assert capsys.readouterr().err == ""  # nothing follows the end, and no timer of an earlier stage prints
    assert not timers.waiting


def test_work_before_the_first_stage_is_printed_too(capsys, monkeypatch):
    timers = TimersByHand()
    monkeypatch.setattr(progress.threading, "Timer", timers)
    with ProgressLines(delay_s=2.0, clock=stopped_clock) as tell:
        (_, function) = timers.waiting.pop()
        function()
        assert capsys.readouterr().err == "prunecast: preparing\n"
        tell("predicting", 0, 9)
        function()
        assert capsys.readouterr().err == ""


def test_a_timer_prints_a_stage_without_calls(capsys, monkeypatch):
    told = threading.Event()
    monkeypatch.setattr(ProgressLines, "_print", then(ProgressLines._print, told.set))
    with ProgressLines(delay_s=0.01):
        assert told.wait(600)
    assert capsys.readouterr().err == "prunecast: preparing\n"


def then(function, after):
    def both(*arguments):
        function(*arguments)
        after()

    return both


class SilentTimer:
    """A timer that never fires: only calls write lines."""

    def start(self):
        pass

    def cancel(self):
        pass


def test_the_time_left_follows_the_pace_since_the_first_line(capsys, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_PER_LINE", 0.0)
    monkeypatch.setattr(progress.threading, "Timer", lambda delay_s, function: SilentTimer())
    now = [0.0]
    with ProgressLines(time_left=True, delay_s=0.0, clock=lambda: now[0]) as tell:
        for seconds, done in ((0.0, 20), (7.0, 20), (10.0, 30), (30.0, 49), (31.0, 50), (32.0, 51)):
            now[0] = seconds
            tell("trials", done, 50)
    assert capsys.readouterr().err.splitlines() == [
        "prunecast: trials: 20 of 50",
        "prunecast: trials: 20 of 50",
        "prunecast: trials: 30 of 50, 20 s left",
        "prunecast: trials: 49 of 50, 1 s left",
        "prunecast: trials: 50 of 50",
        "prunecast: trials: 51 of 50",
    ]


def lines_at(capsys, monkeypatch, stages, **options):
    """Lines of stages that are told at times in seconds, without a timer."""
    monkeypatch.setattr(progress.threading, "Timer", lambda delay_s, function: SilentTimer())
    now = [0.0]
    with ProgressLines(clock=lambda: now[0], **options) as tell:
        for seconds, stage, done in stages:
            now[0] = seconds
            tell(stage, done, 50)
    return capsys.readouterr().err.splitlines()


def test_the_time_left_is_told_only_if_it_is_asked_for(capsys, monkeypatch):
    told = lines_at(capsys, monkeypatch, [(0.0, "trials", 20), (10.0, "trials", 30)], delay_s=0.0)
    assert told == ["prunecast: trials: 20 of 50", "prunecast: trials: 30 of 50"]


def test_a_line_comes_at_the_delay_of_a_stage_and_then_every_five_seconds(capsys, monkeypatch):
    at = {"reading": (0.0, 1.5, 2.0, 6.5, 7.0, 11.5), "timing": (12.0, 13.5, 14.0, 18.5, 19.0)}
    stages = [(seconds, stage, int(2 * seconds)) for stage, times in at.items() for seconds in times]
    told = lines_at(capsys, monkeypatch, stages, delay_s=2.0)
    heard = {"reading": (2.0, 7.0), "timing": (14.0, 19.0)}
    assert told == [
        f"prunecast: {stage}: {2 * seconds:.0f} of 50" for stage, times in heard.items() for seconds in times
    ]


@pytest.mark.parametrize("most", [12, 500])
@pytest.mark.parametrize("longer", [-1, 0, 1, 1000])
def test_a_text_is_cut_only_if_it_is_longer_than_the_line(most, longer):
    text = "".join(chr(ord("a") + place % 26) for place in range(most + longer))
    shown = cut(text, most)
    begin, dots, end = shown.partition(" ... ")
    assert (shown == text) == (longer <= 0)
    assert len(shown) == min(len(text), most)
    assert bool(dots) == (longer > 0)
    assert text.startswith(begin)
    assert text.endswith(end)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (119, "119 s"), (120, "2 min"), (7199, "120 min"), (7200, "2.0 h"), (9000, "2.5 h")],
)
def test_durations(seconds, text):
    assert progress._duration(seconds) == text


def test_the_environment_says_when_and_whether(capsys, monkeypatch):
    monkeypatch.setenv(PROGRESS, "off")
    with ProgressLines() as tell:
        assert tell._timer is None
        tell("predicting", 1, 2)
    assert capsys.readouterr().err == ""
    monkeypatch.setenv(PROGRESS, "0")
    with ProgressLines() as tell:
        tell("predicting", 1, 2)
    assert "prunecast: predicting: 1 of 2\n" in capsys.readouterr().err


@pytest.mark.parametrize("said", ["soon", "-1", "nan", "inf"])
def test_what_the_environment_cannot_say(monkeypatch, said):
    monkeypatch.setenv(PROGRESS, said)
    with pytest.raises(BadInput, match="PRUNECAST_PROGRESS must be off or seconds"):
        ProgressLines()


@pytest.mark.parametrize("quiet", [True, False])
def test_quiet_anywhere_is_silent(model, quiet):
    command = [sys.executable, "-m", "prunecast", *["--quiet"] * quiet, "predict", model]
    fast = ["--engine", "model", "-n", "64", "--no-crossovers"]
    ended = subprocess.run(
        [*command, *fast], capture_output=True, text=True, env={**os.environ, PROGRESS: "0"}, check=True
    )
    assert (ended.stderr == "") == quiet

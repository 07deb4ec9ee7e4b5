"""Exit codes, one-line messages, and progress of work that needs more than two seconds.

Control characters in names are escaped, and the length of a line is limited. Progress is printed to stderr.
"""

import math
import os
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import TextIO

from prunecast.errors import BadInput
from prunecast.files import cut
from prunecast.text import printable

LONGEST_LINE = 500
"""Longest line of errors and progress, in characters."""
DONE = 0
MISSED = 1
"""Exit code if a requested constraint does not hold."""
BAD_INPUT = 2
FAULT = 3
"""Exit code of an internal error."""
INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 plus the number of the signal, as in shells."""


def one_line(text: str) -> str:
    """Return the text as one printable line; if it has more than 500 characters, its middle is left out."""
    # shorten it first: a name may have megabytes
    return cut(printable(" ".join(cut(text, 4 * LONGEST_LINE).split())), LONGEST_LINE)


def tell(text: str, *, err: bool = False) -> None:
    """Print a line to stdout, or to stderr if `err` is set, with unprintable characters escaped."""
    (tell_stderr if err else sys.stdout.write)(printable(text) + "\n")


def tell_stderr(text: str) -> None:
    """Write to stderr and ignore errors: a closed stderr must not change results or the exit code."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        discard(sys.stderr)


def discard(stream: TextIO) -> None:
    """Redirect a stream to the null device, so that the interpreter's flush at exit does not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


PROGRESS = "PRUNECAST_PROGRESS"
"""Name of an environment variable: `off` for no progress, or the seconds after which a stage is printed."""
DELAY_S = 2.0
"""Seconds after which a stage is printed, unless the environment variable sets another value."""
SECONDS_PER_LINE = 5.0
"""Seconds between two lines of progress if stderr is not a terminal."""


class ProgressLines:
    """Progress callback `progress(stage, done, total)` that prints to stderr.

    It is a context manager, which begins the stage `preparing` and clears the last printed line at the end. A
    timer prints a stage that began two seconds ago, and prints it again with its duration as long as no call
    follows, so that a long compilation or the pruning of a large layer does not look like a hang.

    Parameters
    ----------
    time_left : also print the remaining time, estimated from the pace since the stage began
    delay_s : seconds after which a stage is printed, infinity for no progress; None for the value of the
        environment variable `PRUNECAST_PROGRESS`, else two seconds
    clock : monotonic clock in seconds, which tests replace
    """

    def __init__(
        self,
        *,
        time_left: bool = False,
        delay_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._delay_s = _delay_of_environment() if delay_s is None else delay_s
        self._clock = clock
        self._tells_left = time_left
        self._first_done = 0
        self._rewrites = sys.stderr.isatty()
        self._stage = ""
        self._line = ""
        self._text = ""
        self._printed = ""
        self._is_over = False
        self._last_print_s = -SECONDS_PER_LINE
        self._stage_start_s = 0.0
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None

    def __enter__(self) -> "ProgressLines":
        self._text = "preparing"
        self._begin(self._text)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._is_over = True
        self._cancel()
        if self._rewrites and self._line:
            tell_stderr("\r\x1b[K")

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Report that `done` of `total` parts of `stage` are finished."""
        self._text = f"{stage}: {done} of {total}" if total > 1 else stage
        if stage != self._stage:
            self._begin(stage)
            self._first_done = done
        self._text += self._left(done, total)
        if self._clock() - self._stage_start_s >= self._delay_s:
            self._print()

    def _left(self, done: int, total: int) -> str:
        if not self._tells_left or done <= self._first_done or done >= total:
            return ""
        pace_s = (self._clock() - self._stage_start_s) / (done - self._first_done)
        return f", {_duration(pace_s * (total - done))} left"

    def _begin(self, stage: str) -> None:
        self._cancel()
        self._stage, self._stage_start_s = stage, self._clock()
        self._last_print_s, self._printed = -SECONDS_PER_LINE, ""
        if math.isinf(self._delay_s):
            return
        self._print_after(self._delay_s)

    def _print_after(self, delay_s: float) -> None:
        """Print the stage after `delay_s` seconds, unless a later stage begins before."""
        self._timer = threading.Timer(delay_s, partial(self._print_again, self._stage))
        self._timer.daemon = True
        self._timer.start()

    def _print_again(self, stage: str) -> None:
        """Print progress of `stage` now and every `SECONDS_PER_LINE` seconds, unless a later stage has begun.

        If nothing has changed since the last print, the time since the stage began is printed too.
        """
        with self._lock:
            if self._is_over or stage != self._stage:
                return
            self._print_after(SECONDS_PER_LINE)
        is_new = self._text != self._printed
        self._print("" if is_new else f", for {_duration(self._clock() - self._stage_start_s)}")

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _print(self, duration: str = "") -> None:
        with self._lock:
            if not self._rewrites and self._clock() - self._last_print_s < SECONDS_PER_LINE:
                return
            self._printed = self._text
            self._line = one_line(self._text + duration)
            tell_stderr(f"\r\x1b[K{self._line}" if self._rewrites else f"prunecast: {self._line}\n")
            self._last_print_s = self._clock()


def _delay_of_environment() -> float:
    """Return the seconds after which a stage is printed; infinity if progress is off."""
    setting = os.environ.get(PROGRESS, "").strip()
    if setting == "off":
        return math.inf
    try:
        delay_s = float(setting or DELAY_S)
    except ValueError:
        delay_s = -1.0
    if not 0 <= delay_s < math.inf:
        raise BadInput(f"{PROGRESS} must be off or seconds, got {setting!r}")
    return delay_s


def _duration(seconds: float) -> str:
    """Return a duration as text, in seconds below two minutes, in minutes below two hours, else in hours."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"

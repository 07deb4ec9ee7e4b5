"""`main`: run one command and turn whatever happens into an exit code."""

import errno
import io
import itertools
import os
import sys
import warnings
from collections.abc import Sequence

from prunecast.cli.progress import (
    BAD_INPUT,
    DONE,
    FAULT,
    INTERRUPTED,
    PROGRESS,
    discard,
    one_line,
    tell_stderr,
)
from prunecast.errors import BadInput

# Commands run one thread per processor; threads of OpenBLAS under them would only wait for one another.
# NumPy reads the variable when it is imported, which is later.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

ANYWHERE = ("--debug", "--quiet")
"""Options that every command takes, at any place."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run `prunecast` with the given arguments, those of the process by default, and return the exit code.

    `--debug` anywhere lets errors through with their traceback, `--quiet` anywhere is silent about progress.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    if "--quiet" in arguments:
        os.environ[PROGRESS] = "off"
    _let_streams_print_anything()
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            code = _run([argument for argument in arguments if argument not in ANYWHERE])
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # `prunecast ... | head`: nothing failed
        discard(sys.stdout)
        return DONE
    except KeyboardInterrupt:
        return _say("interrupted", INTERRUPTED)
    except Exception as error:
        if debug:
            raise
        return _report(error, arguments)


def _run(arguments: list[str]) -> int:
    import typer

    from prunecast.cli.app import application

    try:
        code = application(arguments)(arguments, prog_name="prunecast", standalone_mode=False)
    except typer.Abort:
        raise KeyboardInterrupt from None
    except SystemExit:  # typer's own answer to a broken pipe
        raise BrokenPipeError from None
    if code == INTERRUPTED:
        raise KeyboardInterrupt
    return int(code or DONE)


def _report(error: Exception, arguments: Sequence[str]) -> int:
    if isinstance(error, BadInput):
        return _say(f"error: {error}", BAD_INPUT)
    if isinstance(error, OSError) and error.errno:
        if error.errno == errno.ENOSPC:
            discard(sys.stdout)
        nameless = "the current folder" if error.errno == errno.ENOENT else "standard output"
        where = os.fsdecode(error.filename) if error.filename else nameless
        return _say(f"error: {os.strerror(error.errno)}: {where}", BAD_INPUT)
    if isinstance(error, MemoryError):
        return _say("error: there is not enough memory for this", BAD_INPUT)
    # Typer's usage errors; it carries its own copy of click or imports it, so the class has no one home.
    if hasattr(error, "format_message"):
        return _say(f"error: {error.format_message()}{_given(error, arguments)}", BAD_INPUT)
    return _say(f"internal error: {type(error).__name__}: {error} (--debug shows where)", FAULT)


def _given(error: Exception, arguments: Sequence[str]) -> str:
    """What the option of a usage error was given; Typer says only what it wanted."""
    option = getattr(error, "param", None)
    names = getattr(option, "opts", ())
    values = [
        argument.partition("=")[2] if "=" in argument else following
        for argument, following in itertools.pairwise([*arguments, ""])
        if argument.partition("=")[0] in names
    ]
    read = values if getattr(option, "multiple", False) else values[-1:]
    return f", got {', '.join(map(repr, read))}" if read else ""


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    """Print a warning as one line, without Python's path and source line."""
    _say(f"warning: {message}", DONE)


def _say(message: str, code: int) -> int:
    """One line on stderr of at most 500 characters, whatever the message holds."""
    tell_stderr(one_line(f"prunecast: {message}") + "\n")
    return code


def _let_streams_print_anything() -> None:
    """Tensor names may hold characters that a terminal's encoding lacks: print them escaped, do not fail.

    A stream that was closed before we began (`>&-`) takes all that is written and keeps none of it.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")

"""`main`: run one command, and convert its result or error to an exit code."""

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

# Commands run one thread per processor, so threads of OpenBLAS would only compete with them.
# NumPy, which is imported later, reads the variable at its import.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

ANYWHERE = ("--debug", "--quiet")
"""Options that every command accepts, at any position."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run `prunecast` with the arguments `argv` and return the exit code.

    If `argv` is None, the arguments of the process are used. `--debug` at any position lets errors through
    with their traceback, and `--quiet` at any position disables progress.
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
    except SystemExit:  # typer raises it for a broken pipe
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
    # Usage errors of Typer. Their class is in click, or in Typer's own copy of click, so test for the method.
    if hasattr(error, "format_message"):
        return _say(f"error: {error.format_message()}{_given(error, arguments)}", BAD_INPUT)
    return _say(f"internal error: {type(error).__name__}: {error} (--debug shows where)", FAULT)


def _given(error: Exception, arguments: Sequence[str]) -> str:
    """Return the rejected value of a usage error as text, which Typer's message does not contain."""
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
    """Print a message as one line of at most 500 characters on stderr, and return `code`."""
    tell_stderr(one_line(f"prunecast: {message}") + "\n")
    return code


def _let_streams_print_anything() -> None:
    """Let stdout and stderr escape characters that their encoding lacks; tensor names may contain them.

    Also replace a stream that the caller closed (`>&-`) by the null device.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")

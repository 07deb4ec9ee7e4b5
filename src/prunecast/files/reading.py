"""Read regular files of limited size, JSON with numbers of limited length, and TOML files of this project."""

import json
import math
import os
import stat
import tomllib
from collections import Counter
from importlib import resources
from pathlib import Path
from typing import Any, NoReturn

from prunecast.errors import BadInput

MIB = 2**20
MOST_DIGITS = 20
"""Maximum number of digits of an integer in JSON: enough for 2**63, and it bounds the parsing time."""
KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (lambda mode: stat.S_ISCHR(mode) or stat.S_ISBLK(mode), "a device"),
)


def cut(text: str, most: int) -> str:
    """Return the text; if it is longer than `most` characters, keep only its beginning and its end."""
    if len(text) <= most:
        return text
    begin = (most - 5) * 3 // 5
    return f"{text[:begin]} ... {text[len(text) - (most - 5 - begin) :]}"


def check_regular(path: str | Path, wanted: str) -> None:
    """Raise BadInput unless the path is a regular file or a symbolic link to one.

    Reading a pipe or a device may never end.

    Parameters
    ----------
    wanted : expected kind of file, for the message

    Raises
    ------
    BadInput : the file does not exist or is inaccessible, or it is a folder, pipe, socket or device
    """
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError) as error:
        cause = error.strerror if isinstance(error, OSError) else str(error)
        raise BadInput(f"{path}: wanted {wanted}, cannot read it: {cause}") from None
    if kind := other_than_regular(mode):
        raise BadInput(f"{path}: wanted {wanted}, got {kind}")


def other_than_regular(mode: int) -> str:
    """Return the kind of a file (`a folder`, `a pipe`) from its `st_mode`; empty for a regular file."""
    if stat.S_ISREG(mode):
        return ""
    return next((name for is_it, name in KINDS if is_it(mode)), "something else")


def read_bytes(path: str | Path, wanted: str, *, most: int) -> bytes:
    """Return the content of a regular file.

    Parameters
    ----------
    wanted : expected kind of file, for the message
    most : largest size in bytes

    Raises
    ------
    BadInput : the file is unreadable, not a regular file, or larger than `most`
    """
    check_regular(path, wanted)
    try:
        with open(path, "rb") as file:
            content = file.read(most + 1)
    except OSError as error:
        raise BadInput(f"{path}: wanted {wanted}, cannot read it: {error.strerror}") from None
    if len(content) > most:
        raise BadInput(f"{path}: wanted {wanted} of at most {most} bytes, got more")
    return content


def read_text(path: str | Path, wanted: str, *, most: int) -> str:
    """Return the text of a UTF-8 file. Parameters and errors are those of `read_bytes`."""
    try:
        return read_bytes(path, wanted, most=most).decode()
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: wanted {wanted}, but: {error}") from None


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text, with restrictions that the JSON standard does not have.

    Numbers must be finite, integers have at most 20 digits, and the keys of an object must be unique.

    Raises
    ------
    ValueError : the text is not such JSON
    RecursionError : the text is nested too deeply
    """
    return json.loads(
        text, parse_int=_whole, parse_float=_finite, parse_constant=_refuse, object_pairs_hook=_object
    )


def packaged_toml(package: str, name: str) -> dict[str, Any]:
    """Return the content of a TOML file that is stored in a package of this project."""
    return tomllib.loads(resources.files(package).joinpath(name).read_text(encoding="utf-8"))


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; refuse duplicate keys, whose value would depend on the JSON parser."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise ValueError(f"{twice[:80]!r} is there twice")
    for text in (*found, *found.values()):
        if isinstance(text, str):
            # Refuse lone surrogates, which are no text, but not those that stand for undecodable bytes of a
            # file name (surrogateescape): prunecast itself writes these.
            try:
                text.encode("utf-8", "surrogateescape")
            except UnicodeEncodeError:
                raise ValueError(f"{text[:80]!r} has half a character") from None
    return found


def _whole(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text[:20]} is too large a number")
    return number


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number")

"""Check the arguments of public functions against their annotated types, and make NumPy scalars plain
numbers.

A wrong type raises a TypeError such as `predict: sparsity must be a number or None, got 'x'`. NaN,
integers of 2^63 or more and empty paths raise a `BadInput` with a message of the same form. Other ranges are
checked by the functions.
"""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import fields
from functools import cache, wraps
from inspect import Parameter, signature
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from prunecast.errors import BadInput, short_text

P = ParamSpec("P")
R = TypeVar("R")

LARGEST_WHOLE = 2**63
WORDS = {
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    str: ("a text", "texts"),
    bool: ("True or False", "True or False"),
    Path: ("a path", "paths"),
    NoneType: ("None", "None"),
    Any: ("anything", "anything"),
}
"""Type -> the words for its values in an error message, in the singular and in the plural."""


class _Unfit(Exception):
    """Internal exception for a value that is not of the annotated type."""


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a public function so that every call checks the types of its arguments.

    Raises
    ------
    TypeError : an argument is not of its annotated type
    BadInput : a number is NaN or an integer of 2^63 or more, a path is empty, or a text has a null character
    """
    parameters = signature(function).parameters.values()
    places = [one.name for one in parameters if one.kind is Parameter.POSITIONAL_OR_KEYWORD]

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        kinds = _kinds(function)
        # Too many or too few arguments, and unknown names, are a TypeError of Python's own that names them
        given = [
            _plain_argument(function.__name__, name, value, kinds[name])
            for name, value in zip(places, args, strict=False)
        ]
        known = {name: value for name, value in kwargs.items() if name in kinds}
        named = {**kwargs, **checked_items(known, kinds, function.__name__)}
        return function(*given, *args[len(places) :], **named)  # type: ignore[arg-type]

    return call


def check_fields(record: Any, owner: str) -> None:
    """Check and convert the fields of a frozen dataclass, in place, as `checked` does for arguments.

    Error messages begin with `owner`.
    """
    kind: Any = type(record)
    given = {one.name: getattr(record, one.name) for one in fields(record)}
    for name, value in checked_items(given, _kinds(kind), owner).items():
        object.__setattr__(record, name, value)


def checked_items(given: Mapping[str, Any], kinds: Mapping[str, Any], owner: str) -> dict[str, Any]:
    """Return name -> value, checked and converted to the types in `kinds` as `checked` does for arguments.

    Error messages begin with `owner`.
    """
    return {name: _plain_argument(owner, name, value, kinds[name]) for name, value in given.items()}


@cache
def _kinds(owner: Any) -> dict[str, Any]:
    """Return name -> annotated type for the parameters of a function or the fields of a class.

    `**kwargs` and the type of the result are left out.
    """
    hints = get_type_hints(owner)
    if not isinstance(owner, type):
        handed_on = (
            one.name for one in signature(owner).parameters.values() if one.kind is Parameter.VAR_KEYWORD
        )
        for name in (*handed_on, "return"):
            hints.pop(name, None)
    return hints


def _plain_argument(owner: str, name: str, value: Any, kind: Any) -> Any:
    try:
        return _plain(value, kind)
    except _Unfit:
        *first, last = dict.fromkeys(_words(kind))
        words = f"{', '.join(first)} or {last}" if first else last
        raise TypeError(f"{owner}: {name} must be {words}, got {short_text(value)}") from None
    except ValueError as error:
        raise BadInput(f"{owner}: {name} must be {error}, got {short_text(value)}") from None


def _plain(value: Any, kind: Any) -> Any:
    """Return `value` as the annotated type `kind`, with NumPy scalars converted to Python numbers.

    Raises
    ------
    _Unfit : the value has another type
    ValueError : NaN, a huge integer, an empty path or a null character; the message names the expected value
    """
    origin, inside = get_origin(kind), get_args(kind)
    if kind is Any or isinstance(kind, TypeVar):
        return value
    if origin in (Union, UnionType):
        if isinstance(value, str) and not value and Path in inside:  # it would be the current folder
            raise ValueError("a text that is not empty")
        for one in inside:
            try:
                return _plain(value, one)
            except _Unfit:
                continue
        raise _Unfit
    if kind in (int, float, bool):
        return _plain_number(value, kind)
    if origin is None:
        _fits(value, isinstance(value, os.PathLike if kind is Path else kind))
        if kind is not str:
            return value
        text = str.__str__(value)  # for a member of a text Enum its value; `str` would return its name
        if "\0" in text:
            raise ValueError("a text without null characters")
        return text
    if _is_array(kind):
        # Accept arrays of other libraries: the functions convert them
        return _fits(value, hasattr(value, "shape") and hasattr(value, "dtype"))
    if issubclass(origin, Callable):  # type: ignore[arg-type]
        return _fits(value, callable(value))
    if issubclass(origin, Mapping):
        _fits(value, isinstance(value, Mapping))
        if _is_array(inside[1]):
            return value  # arrays of a checkpoint are loaded one at a time, by the code that checks them
        return {_plain(key, inside[0]): _plain(each, inside[1]) for key, each in value.items()}
    if issubclass(origin, tuple) and Ellipsis not in inside:
        _fits(value, isinstance(value, tuple | list) and len(value) == len(inside))
        return tuple(_plain(each, one) for each, one in zip(value, inside, strict=True))
    if issubclass(origin, Iterable):
        # An iterator suffices if each value is read only once
        wanted = Iterable if origin is Iterable else Collection
        _fits(value, isinstance(value, wanted) and not isinstance(value, str | bytes | Mapping))
        return tuple(_plain(one, inside[0]) for one in value)
    return _fits(value, isinstance(value, origin))


def _plain_number(value: Any, kind: type) -> Any:
    dtype = getattr(value, "dtype", None)
    is_bool = isinstance(value, bool) or (getattr(dtype, "kind", "") == "b" and not value.shape)
    if kind is bool:
        return bool(_fits(value, is_bool))
    _fits(value, not is_bool and isinstance(value, Integral if kind is int else Real))
    if isinstance(value, Integral):
        if abs(int(value)) >= LARGEST_WHOLE:
            raise ValueError("a whole number below 2^63")
        return int(value)
    if value != value:
        raise ValueError("a number")
    return float(value)


def _fits(value: Any, does: bool) -> Any:
    if not does:
        raise _Unfit
    return value


def _is_array(kind: Any) -> bool:
    # `npt.NDArray[...]` is an alias of Python 3.12 since NumPy 2.5, and `np.ndarray[...]` before
    return getattr(get_origin(kind), "__name__", "") in ("ndarray", "NDArray")


def _words(kind: Any, *, several: bool = False) -> Iterator[str]:
    """Yield the words for each type that an annotation allows, in the plural if `several` is set."""
    origin, inside = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        for one in inside:
            yield from _words(one, several=several)
    elif kind in WORDS:
        yield WORDS[kind][several]
    elif _is_array(kind):
        yield "arrays" if several else "an array"
    elif origin is None:
        yield f"{kind.__name__}s" if several else f"a {kind.__name__}"
    elif issubclass(origin, Callable):  # type: ignore[arg-type]
        yield "functions" if several else "a function"
    elif issubclass(origin, Mapping):
        keys, values = (" or ".join(_words(one, several=True)) for one in inside)
        yield f"{'mappings' if several else 'a mapping'} of {keys} to {values}"
    else:
        kinds = [one for one in inside if one is not Ellipsis]
        count = "" if len(kinds) < len(inside) or not issubclass(origin, tuple) else f"{len(inside)} "
        each = " or ".join(dict.fromkeys(word for one in kinds for word in _words(one, several=True)))
        yield f"{'lists' if several else 'a list'} of {count}{each}"

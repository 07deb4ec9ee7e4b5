"""Annotations of options that name files, and the check of these files before a command starts.

The annotation of a parameter that names input files contains a `Reads`, and that of a parameter that names
outputs a `Writes`. `check_given` collects both. A test fails if a parameter names a path and has neither.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from inspect import Parameter
from pathlib import Path
from typing import Any, NamedTuple

from prunecast.errors import BadInput
from prunecast.files import Output, OutputFile, OutputFolder, check_outputs

Given = Mapping[str, Any]
"""Name of each parameter of a command -> its value."""


class Reads(NamedTuple):
    """Annotation of a parameter whose value, or each of whose values, names a file or folder to read."""

    files: Callable[[str], Iterable[str | Path]] = lambda value: () if os.path.isdir(value) else (value,)
    """Function that returns the files that are read for one value. By default it returns the value itself,
    but nothing for a folder, since its name may also be a keyword of the option, such as `bundled`."""


class Writes(NamedTuple):
    """Annotation of a parameter whose value names a file or folder to write."""

    outputs: Callable[[str, str | Path, Given], Iterable[Output]]
    """Function that returns the outputs for the name of the option, its value, and the values of all
    parameters.
    """


def weight_files(weights: str) -> Iterator[Path]:
    """Yield all files of a checkpoint, including shards, their index, and external data of an ONNX model."""
    from prunecast.workload.layers import files_of

    return files_of(weights)


def gpu_files(gpu: str) -> list[Path]:
    """Return the spec file of `gpu`, which no output may overwrite, if `gpu` is a path.

    For the name of a known GPU the list is empty: an output may therefore be called `h200-sxm`.
    """
    from prunecast.hardware import spec_files

    return spec_files(gpu)


def file_written(*suffixes: str, is_new: bool = False, companions: tuple[str, ...] = ()) -> Writes:
    """Return the annotation of an option that names one output file, with the arguments of `OutputFile`."""
    make = partial(OutputFile, suffixes=suffixes, is_new=is_new, companions=companions)
    return Writes(lambda what, value, given: [make(what=what, path=Path(value))])


def folder_written(*names: str) -> Writes:
    """Return the annotation of an option that names an output folder.

    `names` are the names or glob patterns of the files that are written into the folder.
    """
    return Writes(lambda what, value, given: [OutputFolder(what=what, path=Path(value), names=names)])


def check_given(parameters: Iterable[Parameter], given: Given) -> None:
    """Check that a command can write all its outputs, and writes none of them twice and none that it reads.

    Raises
    ------
    BadInput : in the same cases as `check_outputs`; also for an output without a name, which would be the
        current folder: `-o "$OUT"` with an unset variable
    """
    marked = [(parameter, given[parameter.name]) for parameter in parameters]
    for parameter, value in marked:
        if value == "" and marks_of(parameter, Writes):
            raise BadInput(f"{option_name(parameter)} must name what is written, got an empty text")
    outputs = [
        output
        for parameter, value in marked
        for mark in marks_of(parameter, Writes)
        if value is not None
        for output in mark.outputs(option_name(parameter), value, given)
    ]
    check_outputs(
        outputs,
        (
            path
            for parameter, value in marked
            for mark in marks_of(parameter, Reads)
            for one in (value if isinstance(value, list) else [value])
            if one is not None
            for path in mark.files(str(one))
        ),
    )


def marks_of(parameter: Parameter, kind: type[Reads] | type[Writes]) -> list[Any]:
    """Return the objects of one kind, `Reads` or `Writes`, in the annotation of a parameter."""
    return [mark for mark in getattr(parameter.annotation, "__metadata__", ()) if isinstance(mark, kind)]


def option_name(parameter: Parameter) -> str:
    """Return the shortest spelling of an option, or the name of an argument in capitals."""
    info = parameter.annotation.__metadata__[0]
    spellings = getattr(info, "param_decls", None) or ()
    if type(info).__name__ == "ArgumentInfo":
        return parameter.name.upper()
    return min(spellings, key=len, default=f"--{parameter.name.replace('_', '-')}")

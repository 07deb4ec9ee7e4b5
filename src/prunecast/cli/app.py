"""The Typer application: the list of commands, and the text that `prunecast` prints without a command."""

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from importlib import import_module
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, get_type_hints

import typer

from prunecast.cli.guard import check_given
from prunecast.version import tool_version

START = """\
prunecast tells how fast a pruned layer runs on an NVIDIA GPU that you do not have. Start with

  prunecast gpus                                        the GPUs that it knows
  prunecast predict model.safetensors --gpu h200-sxm    dense against sparse, layer by layer
  prunecast explain model.safetensors --target LAYER    where the time of one layer goes

prunecast --help lists every command, prunecast COMMAND --help its options."""

COMMANDS = (
    "predict",
    "prune",
    "search",
    "compare",
    "export",
    "explain",
    "report",
    "timeline",
    "sweep",
    "gpus",
    "patterns",
    "validate",
    "calibrate",
)
"""Names of the modules of this package that contain a command of the same name, in the order of the help
text.
"""


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(tool_version())
        raise typer.Exit


def _start(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(START)


def flattened(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with a signature for Typer: each field of its dataclass parameters becomes an option.

    The returned function calls `check_given` before the command.
    """
    hints = get_type_hints(command, include_extras=True)
    records: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    parameters: list[Parameter] = []
    for name, parameter in signature(command).parameters.items():
        if name in records:
            parameters += _options(records[name])
        else:
            parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[name]))

    def run(**given: Any) -> None:
        check_given(parameters, given)
        made = {
            name: record(**{option.name: given.pop(option.name) for option in fields(record)})
            for name, record in records.items()
        }
        command(**given, **made)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return run


def _options(record: Any) -> list[Parameter]:
    """Return a parameter for each field of a dataclass of options."""
    hints = get_type_hints(record, include_extras=True)
    return [
        Parameter(o.name, Parameter.KEYWORD_ONLY, default=o.default, annotation=hints[o.name])
        for o in fields(record)
    ]


def application(arguments: Sequence[str]) -> typer.Typer:
    """Return the application with the one command that the arguments name, or with all if they name none."""
    app = typer.Typer(
        add_completion=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        help="Tells how fast a pruned layer runs on an NVIDIA GPU that you do not have.",
        epilog="Exit codes: 0 done, 1 constraint missed, 2 bad input. --debug anywhere shows a traceback,"
        " --quiet no progress.",
    )
    app.callback(invoke_without_command=True)(_start)
    named = next((argument for argument in arguments if not argument.startswith("-")), "")
    for name in (named,) if named in COMMANDS else COMMANDS:
        module = import_module(f"prunecast.cli.{name}")
        app.command()(flattened(getattr(module, name)))
    return app

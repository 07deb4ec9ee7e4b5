"""The Typer application: the list of commands and what `prunecast` alone prints."""

from typing import Annotated

import typer

from prunecast.cli.calibrate import calibrate
from prunecast.cli.compare import compare
from prunecast.cli.explain import explain
from prunecast.cli.gpus import gpus
from prunecast.cli.patterns import patterns
from prunecast.cli.predict import predict
from prunecast.cli.prune import prune
from prunecast.cli.report import report
from prunecast.cli.search import search
from prunecast.cli.sweep import sweep
from prunecast.cli.timeline import timeline
from prunecast.cli.validate import validate
from prunecast.version import tool_version

START = """\
prunecast tells how fast a pruned layer runs on an NVIDIA GPU that you do not have. Start with

  prunecast gpus                                        the GPUs that it knows
  prunecast predict model.safetensors --gpu h200-sxm    dense against sparse, layer by layer
  prunecast explain model.safetensors --target LAYER    where the time of one layer goes

prunecast --help lists every command, prunecast COMMAND --help its options."""

app = typer.Typer(
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Tells how fast a pruned layer runs on an NVIDIA GPU that you do not have.",
    epilog="Exit codes: 0 done, 1 constraint missed, 2 bad input. --debug anywhere shows a traceback,"
    " --quiet no progress.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(tool_version())
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _start(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(START)


for command in (
    predict,
    prune,
    search,
    compare,
    explain,
    report,
    timeline,
    sweep,
    gpus,
    patterns,
    validate,
    calibrate,
):
    app.command()(command)

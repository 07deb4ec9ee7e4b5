"""`prunecast search`: search for better patterns than the plain allocation, with the trials in a database."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from prunecast.cli import options as opt
from prunecast.cli.budget import Budget
from prunecast.cli.guard import Given, Writes
from prunecast.cli.model_page import memory_facts, say_facts
from prunecast.cli.output import Report, deliver
from prunecast.files import Output
from prunecast.text import microseconds, percent

if TYPE_CHECKING:
    from prunecast.cli.tables import Page
    from prunecast.codesign.study import StudyResult

SHOWN = 10
"""Maximum number of trials in the printed table; JSON contains all of them."""


def _folder(what: str, value: str | Path, given: Given) -> list[Output]:
    from prunecast.codesign.write_pruned import pruned_folder

    return [pruned_folder(value, what, given["weights"])]


def _database(what: str, value: str | Path, given: Given) -> list[Output]:
    from prunecast.codesign.study.storage import database_outputs

    return database_outputs(str(value), what)


def search(
    weights: opt.Weights,
    *,
    output: Annotated[
        str | None,
        opt.option("FOLDER", "Folder to write the best to.", "--output", "-o", default=False),
        Writes(_folder),
    ] = None,
    sparsity: Annotated[
        float | None, opt.option("SHARE", "Least share of weights removed, in all.", default=False)
    ] = None,
    trials: Annotated[
        int, opt.option("N", "Trials that the study has in the end, earlier ones included.")
    ] = 50,
    storage: Annotated[
        str, opt.option("FILE|URL", "SQLite file, or postgresql+psycopg://user@host/name."), Writes(_database)
    ] = "study.sqlite",
    seed: Annotated[int, opt.option("N", "Seed of the order in which patterns are tried.")] = 0,
    budget: Budget,
    printed: opt.PrintForm,
) -> None:
    """Try more patterns than `prune --latency` does. Other tiles, shuffled rows, two patterns in a layer.

    Every trial offers groups of layers one more pattern; its value is the importance that the model retains
    within the latency budget. The same command resumes a stopped search; several at once share the work.
    """
    from prunecast.cli.progress import ProgressLines
    from prunecast.codesign.study import search_model

    targets = budget.targets(sparsity)
    with ProgressLines(time_left=True) as progress:
        found = search_model(
            budget.source(weights),
            targets,
            trials=trials,
            storage=storage,
            seed=seed,
            out=output,
            **budget.arguments(),
            progress=progress,
        )
    deliver(printed, Report(found.document(), found.frame_rows(), partial(_show, found)))


def _show(found: "StudyResult", page: "Page") -> None:
    _show_trials(found, page)
    page.table(
        [
            {
                "time, % of dense": percent(point.time_share),
                "plain kept %": "-"
                if point.plain_importance is None
                else f"{100 * point.plain_importance:.2f}",
                "kept %": f"{100 * point.retained_importance:.2f}",
                "trial": str(point.trial),
            }
            for point in found.pareto
        ]
    )
    best, plain = found.best.result, found.plain.result
    page.say(
        "",
        f"{len(found.trials)} trials, {found.computed} computed now. Trial {found.best_trial} keeps "
        f"{best.retained_importance:.2%} of the importance in {microseconds(best.seconds)} us, the plain "
        f"allocation {plain.retained_importance:.2%} in {microseconds(plain.seconds)} us.",
    )
    page.say(f"Times: {found.best.conditions.words}.")
    for own in zip(best.dense_memory, best.memory, strict=True):
        say_facts(memory_facts(*own, best.gpu_bytes), page)
    page.say(f"Study {found.study} in {found.storage}.")
    if found.best.folder is not None:
        page.say(f"Wrote {found.best.folder}.")


def _show_trials(found: "StudyResult", page: "Page") -> None:
    ranked = sorted(
        (t for t in found.trials if t.retained_importance is not None and t.same_as is None),
        key=lambda t: (-(t.retained_importance or 0.0), t.trial),
    )
    page.table(
        [
            {
                "trial": str(t.trial),
                "added patterns": t.patterns_text(),
                "time us": microseconds(t.seconds or 0.0),
                "sparsity %": percent(t.sparsity or 0.0),
                "kept %": f"{100 * (t.retained_importance or 0.0):.2f}",
            }
            for t in ranked[:SHOWN] + [t for t in ranked[SHOWN:] if t.trial == 0]
        ],
        words=("added patterns",),
    )
    page.say()

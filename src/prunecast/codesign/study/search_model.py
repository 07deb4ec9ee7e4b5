"""`search_model`: run a study that prunes the weights in a file, or a standard model, to targets."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from prunecast.arguments import checked
from prunecast.codesign.provenance import WeightsDigest
from prunecast.codesign.search import PrunedModel, TargetResult, Targets
from prunecast.codesign.search.model_search import ModelSearch
from prunecast.codesign.search.prune_model import files_read, search_of
from prunecast.codesign.study.evaluator import FAMILIES as SPACE_FAMILIES
from prunecast.codesign.study.evaluator import SPACE_VERSION, Evaluator, plain_params
from prunecast.codesign.study.run_trials import (
    REASON,
    RESULT,
    SAME_AS,
    check_study,
    finished_trials,
    patterns_of,
    run_trials,
    trial_numbers,
)
from prunecast.codesign.study.storage import (
    StudyStorage,
    database_outputs,
    optuna_library,
    read_result,
    seeded_sampler,
)
from prunecast.codesign.study.study_result import FinishedTrial, StudyResult, pareto
from prunecast.codesign.tile_maps import check_layer_names
from prunecast.codesign.write_pruned import check_folders, result_aside
from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec
from prunecast.version import tool_version
from prunecast.workload.engines import Progress, silent
from prunecast.workload.layers import Source

STAGE = "trials"


@checked
def search_model(
    weights: Source,
    targets: Targets,
    *,
    gpu: str | GpuSpec,
    trials: int = 50,
    storage: str = "study.sqlite",
    seed: int = 0,
    out: str | Path | None = None,
    progress: Progress = silent,
    **options: Any,
) -> StudyResult:
    """Run the study of a model, GPU and settings until it has `trials` finished trials; return its result.

    Results that are in the database are not computed again, even if another process stored them. Trial 0 is
    the result of `target.prune_to_targets`. Every other trial adds at most one pattern to the options of each
    group of layers.

    Parameters
    ----------
    weights, targets, gpu, out : as in `prune_model`
    trials : number of finished trials at the end, including those of earlier runs and other processes
    storage : path of an SQLite file, or URL of a database
    seed : seed of the sampler. A single process gets the same result with the same seed, even if it was
        interrupted and resumed
    progress : called with the progress
    options : parameters of `search_of`

    Raises
    ------
    BadInput : an argument cannot be used, the targets cannot be met, Optuna is not installed, or the database
        cannot be used. A database without this study then stays unchanged
    """
    if trials < 1:
        raise BadInput(f"trials must be at least 1, got {trials}")
    if not 0 <= seed < 2**32:
        raise BadInput(f"seed must be from 0 to 2^32 - 1, got {seed}")
    folder = None if out is None else Path(out)
    check_folders(
        [] if folder is None else [folder],
        weights,
        reads=files_read(gpu, options),
        others=database_outputs(storage, "storage"),
    )
    kept_in = StudyStorage(storage)
    search = replace(search_of(weights, gpu=gpu, **options, progress=progress), progress=silent)
    if folder is not None:
        check_layer_names(search.workload.layers)
    evaluator = Evaluator(search, targets)
    with kept_in.errors():
        found = _run(kept_in, evaluator, trials, seed, folder, progress)
    if folder is not None:
        with result_aside(folder) as unfinished:
            found.best.fill(unfinished, search, weights, found.document())
    return found


def _run(
    kept_in: StudyStorage,
    evaluator: Evaluator,
    trials: int,
    seed: int,
    folder: Path | None,
    progress: Progress,
) -> StudyResult:
    """Run the study of an evaluator until it has `trials` finished trials, and return its result."""
    search, targets = evaluator.search, evaluator.targets
    name, groups = study_name(search, targets), tuple(sorted(set(evaluator.groups.values())))
    progress("plain allocation", 0, 1)
    study = _open(kept_in, name, seed, evaluator, groups)
    first = finished_trials(study)[0]
    plain = _result(first)
    computed = run_trials(
        study,
        groups,
        lambda patterns: evaluator.result(patterns, plain),
        trials,
        lambda done: progress(STAGE, min(done, trials), trials),
    )
    finished, numbers = finished_trials(study), trial_numbers(study)
    results = {numbers[t.number]: _result(t) for t in finished if RESULT in t.user_attrs}
    plain = results[numbers[first.number]]
    # If several trials retain the same importance, take the first one
    best = max(results, key=lambda number: (results[number].retained_importance, -number))
    fronts = {number: result.front for number, result in results.items()}
    return StudyResult(
        study=name,
        storage=kept_in.shown,
        space_version=SPACE_VERSION,
        seed=seed,
        trials=tuple(_finished(t, groups, numbers, results.get(numbers[t.number])) for t in finished),
        computed=computed,
        plain=PrunedModel.of(search, plain, targets, folder),
        best=PrunedModel.of(search, results[best], targets, folder),
        best_trial=best,
        pareto=pareto(plain.front, fronts, plain.dense_seconds),
    )


def _open(kept_in: StudyStorage, name: str, seed: int, evaluator: Evaluator, groups: Sequence[str]) -> Any:
    """Open or create the study. Its first trial is the plain result, without additional patterns.

    The plain result is computed before anything is written, so that targets that cannot be met leave the
    database unchanged.
    """
    optuna = optuna_library()
    known = kept_in.exists and name in optuna.get_all_study_names(kept_in.open())
    plain = None if known else evaluator.plain()
    study = optuna.create_study(
        storage=kept_in.open(),
        study_name=name,
        direction="maximize",
        sampler=seeded_sampler(seed),
        load_if_exists=True,
    )
    check_study(study, groups)
    if not finished_trials(study):
        _add_plain(study, plain or evaluator.plain(), groups)  # a kill may leave a study without trials
    return study


def _add_plain(study: Any, plain: TargetResult, groups: Sequence[str]) -> None:
    optuna = optuna_library()
    params = plain_params(groups)
    study.add_trial(
        optuna.trial.create_trial(
            value=plain.retained_importance,
            params=params,
            distributions=dict.fromkeys(params, optuna.distributions.CategoricalDistribution(SPACE_FAMILIES)),
            user_attrs={"seconds": plain.seconds, RESULT: plain.document()},
        )
    )


def _result(trial: Any) -> TargetResult:
    return read_result(trial.user_attrs.get(RESULT), f"trial {trial.number}")


def _finished(
    trial: Any, groups: Sequence[str], numbers: Mapping[int, int], result: TargetResult | None
) -> FinishedTrial:
    same_as = trial.user_attrs.get(SAME_AS)
    return FinishedTrial(
        trial=numbers[trial.number],
        patterns=patterns_of(trial, groups) or {},
        seconds=None if result is None else result.seconds,
        retained_importance=None if result is None else result.retained_importance,
        sparsity=None if result is None else result.sparsity,
        same_as=None if same_as is None else numbers[same_as],
        reason=trial.user_attrs.get(REASON, ""),
    )


def study_name(search: ModelSearch, targets: Targets) -> str:
    """Return the name of a study: `prunecast-` and the first 16 hex digits of a SHA-256 of its inputs.

    The hash covers the importance of every weight, the model graph, the GPU's spec, all settings, and the
    versions of the search space and of this package. The location of files is not included.
    """
    engine, layers = search.engine, search.workload.layers
    numbers = {
        "weights": _weights(search),
        "graph": [repr(operation) for graph in search.workload.graphs for operation in graph],
        "tokens": [
            [run.share, {name: n for name, layer in layers.items() if (n := layer.tokens[place])}]
            for place, run in enumerate(search.workload.passes)
        ],
        "spec": engine.gpu.fingerprint,
        "engine": [engine.name, *engine.conditions.document().values()],
        "dtype": search.dtype,
        "families": list(search.families),
        "caps": dict(search.caps),
        "most_sparsity": search.most_sparsity,
        "targets": asdict(targets),
        "space": SPACE_VERSION,
        "version": tool_version(),
    }
    digest = hashlib.sha256(json.dumps(numbers, sort_keys=True).encode()).hexdigest()
    return f"prunecast-{digest[:16]}"


def _weights(search: ModelSearch) -> str:
    digest = WeightsDigest()
    for name in search.workload.layers:
        digest.add(name, search.workload.importance(name))
    return digest.hexdigest()

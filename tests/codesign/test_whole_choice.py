"""Kernels of a whole pass: the pass is never slower than dense, and what is printed is what is timed."""

import itertools

import numpy as np
import pytest

from prunecast.codesign import predict
from prunecast.codesign.whole_choice import fastest_choice


def coupled_seconds(own: np.ndarray, between: np.ndarray):
    """Time of a chain of products: each has its own time, and neighbours that differ add a transpose."""

    def seconds(choice: tuple[int, ...]) -> float:
        changes = [a != b for a, b in itertools.pairwise(choice)]
        return float(sum(own[place, option] for place, option in enumerate(choice)) + between @ changes)

    return seconds


@pytest.mark.parametrize("seed", range(30))
def test_a_choice_is_as_fast_as_the_best_of_all_or_no_single_step_improves_it(seed: int) -> None:
    random = np.random.default_rng(seed)
    own, between = random.uniform(1.0, 2.0, (5, 2)), random.uniform(0.0, 0.6, 4)
    seconds, alone = coupled_seconds(own, between), tuple(own.argmin(axis=1).tolist())
    found = fastest_choice([2] * 5, seconds, alone)
    every = {choice: seconds(choice) for choice in itertools.product((0, 1), repeat=5)}
    assert seconds(found) <= min(every[(0,) * 5], every[alone])
    steps = [(*found[:place], 1 - found[place], *found[place + 1 :]) for place in range(5)]
    assert seconds(found) <= min(every[step] for step in steps)
    assert seconds(found) <= 1.05 * min(every.values())


def test_an_epilogue_that_needs_both_products_is_found_from_dense() -> None:
    """Either product alone is slower sparse; both together save the activation between them."""
    times = {(0, 0): 10.0, (1, 0): 10.5, (0, 1): 10.5, (1, 1): 8.0}
    assert fastest_choice([2, 2], times.__getitem__, (0, 0)) == (1, 1)


def test_groups_with_one_option_stay_dense() -> None:
    assert fastest_choice([1, 2], lambda choice: 5.0 - choice[1], (0, 0)) == (0, 1)


MODELS = [
    ("bert-small", "prefill:1x64"),
    ("bert-small", "prefill:1x100"),
    ("bert-small", "prefill:1x65"),
    ("bert-small", "prefill:16x128"),
    ("gpt2", "decode:8@100"),
    ("whisper-tiny", "batch:2=1,decode:2@100=3"),
    ("resnet18", "batch:1"),
    ("vit-base-16", "batch:1"),
]


@pytest.mark.parametrize("runtime", [None, "engine"])
@pytest.mark.parametrize(("model", "workload"), MODELS)
def test_no_pass_is_slower_than_dense_or_than_with_the_fastest_kernel_of_each_layer(
    model: str, workload: str, runtime: str | None
) -> None:
    options = {"gpu": "h200-sxm", "engine": "model", "crossovers": False, "runtime": runtime}
    table = predict(model, workload=workload, **options)
    for phase in table.whole.phases:
        assert phase.best.time.seconds <= phase.dense.time.seconds
    assert {row.layer: row.kernel for row in table.best()} == dict(table.whole.kernels)


def test_layers_that_only_the_pass_keeps_dense_are_named_with_both_times() -> None:
    table = predict("bert-base", gpu="h200-sxm", tokens=64, runtime="torch", engine="model", crossovers=False)
    alone = {rows[0].layer: min(rows, key=lambda row: row.seconds) for rows in table.layers()}
    kept = [row.layer for row in table.best() if row.kernel == "dense" and alone[row.layer].kernel != "dense"]
    assert kept
    (remark,) = table.whole.remarks
    assert remark.startswith(kept[0])
    assert f"{1e3 * table.whole.best.seconds:.3g} ms, else" in remark
    assert remark == table.notes[0]

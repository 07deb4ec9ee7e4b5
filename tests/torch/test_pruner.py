"""`Pruner` on small models: masks hold through training, schedules run, and the files can be predicted."""

import io
import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from prunecast.codesign import predict  # noqa: E402
from prunecast.codesign.schedule import gradual, one_shot, staged  # noqa: E402
from prunecast.codesign.tile_maps import read_tile_maps  # noqa: E402
from prunecast.errors import BadInput  # noqa: E402
from prunecast.patterns import parse_pattern  # noqa: E402
from prunecast.torch import Pruner  # noqa: E402

INPUTS, HIDDEN = 32, 64


def small_model(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(INPUTS, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, INPUTS)
    )


def train(model, pruner, steps, optimizer=None):
    """Steps on random regression; Adam, whose momentum would revive pruned weights."""
    optimizer = optimizer or torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=1e-2)
    generator = torch.Generator().manual_seed(1)
    changes = 0
    for _ in range(steps):
        x = torch.randn(16, INPUTS, generator=generator)
        optimizer.zero_grad()
        (model(x) - x.roll(1, dims=1)).square().mean().backward()
        optimizer.step()
        changes += pruner.step()
    return changes


def zeros_of(model):
    return {
        name: parameter.detach().flatten(1).numpy() == 0
        for name, parameter in model.named_parameters()
        if parameter.dim() > 1
    }


def assert_pruned_weights_are_zero(model, pruner):
    zeros = zeros_of(model)
    for name, mask in pruner.masks.items():
        assert zeros[name][~mask].all(), name
        assert not zeros[name][mask].any(), name


def test_masks_hold_through_training():
    model = small_model()
    pruner = Pruner(model, "tile-wise:16", 0.75)
    pruner.prepare()
    masks = pruner.masks
    train(model, pruner, 20)
    assert_pruned_weights_are_zero(model, pruner)
    assert all(np.array_equal(masks[name], mask) for name, mask in pruner.masks.items())
    assert all(mask.mean() == pytest.approx(0.25, abs=0.02) for mask in masks.values())


def test_kept_weights_go_on_training():
    model = small_model()
    before = model[0].weight.detach().clone()
    pruner = Pruner(model, "unstructured", 0.5)
    pruner.prepare()
    train(model, pruner, 3)
    kept = torch.from_numpy(pruner.masks["0.weight"])
    assert not torch.equal(model[0].weight[kept], before[kept])


def test_gradients_of_pruned_weights_are_zero():
    model = small_model()
    pruner = Pruner(model, "unstructured", 0.5)
    pruner.prepare()
    model(torch.randn(4, INPUTS)).square().mean().backward()
    pruned = torch.from_numpy(~pruner.masks["0.weight"])
    assert not model[0].weight.grad[pruned].any()
    assert model[0].weight.grad[~pruned].any()


@pytest.mark.parametrize("pattern", ["tile-wise:16", "atp:16x8", "shuffled-block:16", "tvw:16"])
def test_gradual_pruning_never_brings_a_weight_back(pattern):
    model = small_model()
    pruner = Pruner(model, pattern, schedule=gradual(0.75, updates=4, every=3, delay_steps=2))
    pruner.prepare()
    assert not pruner.masks
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    seen, changes = [], 0
    for _ in range(14):
        changes += train(model, pruner, 1, optimizer)
        seen.append(pruner.masks)
    assert changes == 4
    assert pruner.finished
    for before, after in pairwise(seen):
        assert not any(np.any(after[name] & ~before[name]) for name in before)
    for mask in seen[-1].values():
        parse_pattern(pattern).map(mask)


def test_stages_stop_a_group_that_misses_its_floor():
    model = small_model()
    answers = iter([0.1, 0.9, 0.9])
    pruner = Pruner(
        model,
        "unstructured",
        schedule=staged([0.5, 0.75], steps=2, floors=0.5),
        groups={"first": ["0.weight"], "second": ["2.weight"]},
        metric=lambda: next(answers),
    )
    pruner.prepare()
    train(model, pruner, 8)
    assert pruner.run.stopped == {"first": 0.5}
    assert pruner.masks["0.weight"].mean() == pytest.approx(0.5)
    assert pruner.masks["2.weight"].mean() == pytest.approx(0.25)


def test_target_and_ignore_select_weights():
    assert set(Pruner(small_model(), "2:4", ignore=["2.weight"]).parameters) == {"0.weight"}
    assert set(Pruner(small_model(), "2:4", target=["re:^2"]).parameters) == {"2.weight"}
    with pytest.raises(BadInput, match="matches no tensor"):
        Pruner(small_model(), "2:4", target=["9.weight"])


def test_convolutions_are_pruned_as_matrices():
    model = torch.nn.Conv2d(8, 32, 3)
    pruner = Pruner(model, "tile-wise:16", 0.5)
    pruner.prepare()
    assert pruner.masks["weight"].shape == (32, 72)
    kept = model.weight.detach().numpy().reshape(32, 72) != 0
    assert np.array_equal(kept, pruner.masks["weight"])


def test_taylor_counts_every_backward_pass():
    """The score is the sum of (w g)^2; with one weight per output and inputs of one, g is known by hand."""
    model = torch.nn.Linear(2, 1, bias=False)
    model.weight.data = torch.tensor([[1.0, 2.0]])
    pruner = Pruner(model, "unstructured", schedule=one_shot(0.5, delay_steps=1), importance="taylor")
    pruner.prepare()
    for x in ([3.0, 0.5], [1.0, 2.0]):
        model(torch.tensor(x)).sum().backward()
    assert pruner.importance.of("weight").tolist() == [[9.0 + 1.0, 1.0 + 16.0]]


def test_taylor_without_gradients_is_refused():
    pruner = Pruner(small_model(), "unstructured", 0.5, importance="taylor")
    with pytest.raises(BadInput, match="needs gradients"):
        pruner.prepare()


def test_importance_may_be_given_or_computed():
    scores = np.zeros((HIDDEN, INPUTS), np.float32)
    scores[:, :16] = 1.0
    given = Pruner(small_model(), "tile-wise:16", 0.5, target=["0.weight"], importance={"0.weight": scores})
    called = Pruner(
        small_model(), "tile-wise:16", 0.5, target=["0.weight"], importance=lambda name, weights: scores
    )
    for pruner in (given, called):
        pruner.prepare()
        assert np.array_equal(pruner.masks["0.weight"], scores > 0)


def test_masks_that_were_found_before_are_taken():
    model = small_model()
    first = Pruner(model, "tile-wise:16", 0.5)
    first.prepare()
    again = Pruner(small_model(), "tile-wise:16", 0.5)
    again.prepare(first.masks)
    assert_pruned_weights_are_zero(again.model, again)
    with pytest.raises(BadInput, match="masks must be of every layer"):
        Pruner(small_model(), "tile-wise:16", 0.5).prepare({})
    crooked = {name: np.ones((1, 1), bool) for name in first.masks}
    with pytest.raises(BadInput, match="must have shape"):
        Pruner(small_model(), "tile-wise:16", 0.5).prepare(crooked)


@pytest.mark.parametrize("pattern", ["tile-wise:16", "atp:16x8", "shuffled-block:16", "tile-wise-2d:16"])
def test_the_files_can_be_predicted_and_hold_the_tiles(pattern, tmp_path):
    model = small_model()
    pruner = Pruner(model, pattern, 0.75)
    pruner.prepare()
    train(model, pruner, 3)
    folder = pruner.finalize(tmp_path / "out")
    maps = read_tile_maps(folder / "tiles.npz")
    for name, mask in pruner.masks.items():
        assert np.array_equal(maps[name].mask(), mask)
        assert maps[name].fingerprint() == parse_pattern(pattern).map(mask).fingerprint()
    table = predict(
        folder / "weights.safetensors", gpu="h200-sxm", tokens=64, pattern=pattern, sparsity=0.75,
        engine="model", crossovers=False,
    )  # fmt: skip
    dense_rows = {row.layer: row for row in table.predictions if row.kernel == "stspmm"}
    assert dense_rows["0.weight"].sparsity == pytest.approx(1 - pruner.masks["0.weight"].mean())


def test_zero_tiles_sees_the_tiles_of_the_file(tmp_path):
    model = small_model()
    pruner = Pruner(model, "atp:16x8", 0.75)
    pruner.prepare()
    folder = pruner.finalize(tmp_path / "out")
    table = predict(
        folder / "weights.safetensors", gpu="h200-sxm", tokens=64, pattern="zero-tiles:16",
        engine="model", crossovers=False,
    )  # fmt: skip
    found = {row.layer: row.sparsity for row in table.predictions if row.kernel == "tile-wise"}
    assert found["0.weight"] == pytest.approx(1 - pruner.masks["0.weight"].mean())


def test_the_recipe_says_what_was_done(tmp_path):
    model = small_model()
    pruner = Pruner(model, "unstructured", schedule=gradual(0.5, updates=2, every=2))
    pruner.prepare()
    train(model, pruner, 4)
    folder = pruner.finalize(tmp_path / "out")
    recipe = json.loads((folder / "recipe.json").read_text())
    assert recipe["schedule"]["name"] == "gradual"
    assert recipe["steps"] == 4
    assert recipe["tiles"] is None
    assert not (folder / "tiles.npz").exists()
    layer = recipe["layers"][0]
    assert (layer["layer"], layer["m"], layer["k"]) == ("0.weight", HIDDEN, INPUTS)
    assert 0.5 < layer["retained_importance"] < 1.0
    assert layer["sparsity"] == pytest.approx(0.5)


def test_a_file_in_bf16_stays_bf16(tmp_path):
    from safetensors import safe_open

    model = small_model().to(torch.bfloat16)
    pruner = Pruner(model, "unstructured", 0.5)
    pruner.prepare()
    folder = pruner.finalize(tmp_path / "out")
    with safe_open(folder / "weights.safetensors", framework="pt") as file:
        assert file.get_tensor("0.weight").dtype == torch.bfloat16
        assert torch.equal(file.get_tensor("0.weight"), model[0].weight)


def test_bad_input_is_refused(tmp_path):
    with pytest.raises(BadInput, match="needs a metric"):
        Pruner(small_model(), "unstructured", schedule=staged([0.5], steps=1, floors=0.5))
    with pytest.raises(BadInput, match="must be that of the schedule"):
        Pruner(small_model(), "unstructured", 0.6, schedule=one_shot(0.5))
    with pytest.raises(BadInput, match="importance must be one of"):
        Pruner(small_model(), "unstructured", 0.5, importance="luck")
    with pytest.raises(BadInput, match="wanted scores of every layer"):
        Pruner(small_model(), "unstructured", 0.5, importance={})
    with pytest.raises(BadInput, match="must be in one group"):
        Pruner(small_model(), "unstructured", 0.5, groups={"a": ["0.weight"], "b": ["re:weight"]})
    with pytest.raises(BadInput, match="wanted a model with pruned layers"):
        Pruner(small_model(), "unstructured", 0.5).finalize(tmp_path / "out")
    pruner = Pruner(small_model(), "unstructured", 0.5)
    pruner.prepare()
    with pytest.raises(BadInput, match="cannot write"):
        pruner.finalize(tmp_path / "no" / "such" / "folder")


def test_importing_the_package_does_not_import_torch():
    import subprocess
    import sys

    code = "import prunecast.torch, sys; sys.exit('torch' in sys.modules)"
    root = Path(__file__).resolve().parents[2]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, timeout=1800).returncode == 0


def test_matrices_are_copies():
    from prunecast.torch.importance import as_matrix

    weight = torch.ones(2, 2)
    matrix = as_matrix(weight)
    weight.zero_()
    assert matrix.all()


def weights_of(model):
    return {name: parameter for name, parameter in model.named_parameters() if parameter.dim() > 1}


def test_the_way_to_given_masks_takes_the_least_important_first():
    model, final = small_model(), {}
    scores = {name: each.detach().abs().numpy() for name, each in weights_of(model).items()}
    for name, pattern, sparsity in (("0.weight", "tile-wise:16", 0.75), ("2.weight", "block:8x8", 0.5)):
        final[name] = parse_pattern(pattern).prune({name: scores[name]}, sparsity)[name]
    schedule = gradual(0.6, updates=5, every=2)
    pruner = Pruner(model, "unstructured", schedule=schedule, final=final)
    pruner.prepare()
    before = {name: np.ones(mask.shape, bool) for name, mask in final.items()}
    while True:
        for name, mask in pruner.masks.items():
            assert (mask <= before[name]).all()
            assert (mask >= final[name]).all()
            gone = ~mask
            left = mask & ~final[name]
            if gone.any() and left.any():
                assert scores[name][gone].max() <= scores[name][left].min()
            reached = schedule.stages[min(pruner.run.step // 2, 4)].sparsity
            share = reached / 0.6
            assert gone.sum() == pytest.approx(share * (~final[name]).sum(), abs=1)
        before = pruner.masks
        if pruner.finished:
            break
        train(model, pruner, 1)
    for name, mask in final.items():
        assert np.array_equal(pruner.masks[name], mask)
    train(model, pruner, 3)
    assert_pruned_weights_are_zero(model, pruner)


def test_a_state_without_masks_of_the_path_goes_on_to_given_masks():
    """Earlier releases kept them elsewhere if final masks were given."""
    schedule = gradual(0.5, updates=4, every=1)
    final = {
        name: np.arange(each.numel()).reshape(each.shape) % 2 == 0
        for name, each in weights_of(small_model()).items()
    }
    model, again = small_model(), small_model()
    pruner = Pruner(model, "unstructured", schedule=schedule, final=final)
    pruner.prepare()
    train(model, pruner, 2)
    state = pruner.state_dict()
    state |= {"path": {"masks": {}, "groups": {}, "final": {}}, "towards": {}}
    other = Pruner(again, "unstructured", schedule=schedule, final=final)
    other.load_state_dict(state)
    for name, mask in pruner.masks.items():
        assert np.array_equal(other.masks[name], mask)
    train(again, other, 3)
    assert all(np.array_equal(other.masks[name], mask) for name, mask in final.items())


def test_final_masks_must_fit_the_layers():
    model = small_model()
    good = {name: np.ones(each.shape, bool) for name, each in weights_of(model).items()}
    with pytest.raises(BadInput, match=r"another set: '2\.weight'"):
        Pruner(model, "unstructured", 0.5, final={"0.weight": good["0.weight"]})
    with pytest.raises(BadInput, match="shape"):
        Pruner(model, "unstructured", 0.5, final={**good, "0.weight": good["0.weight"].T})


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_distance_from_the_teacher_is_the_divergence(temperature):
    model, teacher = small_model(), small_model(1)
    pruner = Pruner(model, "tile-wise:16", 0.5, teacher=teacher)
    x = torch.randn(3, 5, INPUTS)
    logits = model(x)
    found = pruner.distance(logits, x, temperature=temperature)
    p, q = (np.exp(each.detach().double().numpy() / temperature) for each in (teacher(x), logits))
    p, q = (each / each.sum(-1, keepdims=True) for each in (p, q))
    wanted = temperature**2 * (p * np.log(p / q)).sum(-1).mean()
    assert found.item() == pytest.approx(wanted, rel=1e-5)
    found.backward()
    assert all(parameter.grad is None for parameter in teacher.parameters())
    assert pruner.distance(teacher(x), x).item() == pytest.approx(0.0, abs=1e-6)


def test_distance_needs_a_teacher_of_the_same_shape():
    model = small_model()
    with pytest.raises(BadInput, match="needs the dense model"):
        Pruner(model, "tile-wise:16", 0.5).distance(model(torch.ones(2, INPUTS)), torch.ones(2, INPUTS))
    pruner = Pruner(model, "tile-wise:16", 0.5, teacher=torch.nn.Linear(INPUTS, 3))
    with pytest.raises(BadInput, match=r"\(2, 3\), got \(2, 32\)"):
        pruner.distance(torch.ones(2, INPUTS), torch.ones(2, INPUTS))


RESUMED = [
    ("tile-wise:16", {"schedule": gradual(0.75, updates=4, every=3)}),
    ("atp:16:shuffled", {"schedule": gradual(0.75, updates=4, every=3, delay_steps=2)}),
    ("tile-wise:16", {"schedule": gradual(0.5, updates=4, every=3, delay_steps=2), "importance": "taylor"}),
    ("2:4", {"schedule": gradual(0.5, updates=4, every=3), "way": "towards"}),
    ("tile-wise:16", {"schedule": gradual(0.75, updates=4, every=3), "final": True}),
    (
        "tile-wise:16",
        {"schedule": staged([0.5, 0.75], steps=4, floors=-1.0, tries=2), "metric": lambda: -2.0},
    ),
]


def resumed(pattern, options, before, after):
    """The model after so many steps, the run saved, dropped and begun again in between."""
    model = small_model()
    final = {
        name: parse_pattern(pattern).prune({name: p.detach().abs().numpy()}, options["schedule"].sparsity)[
            name
        ]
        for name, p in model.named_parameters()
        if p.dim() > 1
    }
    options = {**options, **({"final": final} if options.get("final") else {})}
    pruner, optimizer = Pruner(model, pattern, **options), torch.optim.SGD(model.parameters(), lr=1e-2)
    pruner.prepare()
    train(model, pruner, before, optimizer)
    if after is None:
        return model, pruner
    saved = io.BytesIO()
    torch.save({"model": model.state_dict(), "pruner": pruner.state_dict()}, saved)
    saved.seek(0)
    state = torch.load(saved, weights_only=True)
    again = small_model(seed=7)
    again.load_state_dict(state["model"])
    pruner, optimizer = Pruner(again, pattern, **options), torch.optim.SGD(again.parameters(), lr=1e-2)
    pruner.load_state_dict(state["pruner"])
    train(again, pruner, after, optimizer)
    return again, pruner


@pytest.mark.parametrize(("pattern", "options"), RESUMED)
@pytest.mark.parametrize("stop", [1, 7, 20])
def test_a_run_that_goes_on_is_the_run_that_was_not_stopped(pattern, options, stop, monkeypatch):
    batches = {}

    def train_on(model, pruner, steps, optimizer):
        """Batch i is that of step i, whatever ran before."""
        for _ in range(steps):
            x = batches.setdefault(
                pruner.run.step,
                torch.randn(16, INPUTS, generator=torch.Generator().manual_seed(pruner.run.step)),
            )
            optimizer.zero_grad()
            (model(x) - x.roll(1, dims=1)).square().mean().backward()
            optimizer.step()
            pruner.step()

    monkeypatch.setitem(globals(), "train", train_on)
    whole, pruner = resumed(pattern, options, 20, None)
    again, its = resumed(pattern, options, stop, 20 - stop)
    assert its.masks.keys() == pruner.masks.keys()
    for name, mask in pruner.masks.items():
        np.testing.assert_array_equal(its.masks[name], mask)
        np.testing.assert_array_equal(its.first[name], pruner.first[name])
    for name, tensor in whole.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], tensor, rtol=0, atol=0)
    assert (its.finished, its.run.state()) == (pruner.finished, pruner.run.state())


def test_the_state_of_another_pruner_is_refused():
    state = Pruner(small_model(), "tile-wise:16", 0.5).state_dict()
    with pytest.raises(BadInput, match="schedule must be"):
        Pruner(small_model(), "tile-wise:16", 0.75).load_state_dict(state)
    with pytest.raises(BadInput, match="pattern must be"):
        Pruner(small_model(), "tile-wise:32", 0.5).load_state_dict(state)
    with pytest.raises(BadInput, match="layers must be"):
        Pruner(small_model(), "tile-wise:16", 0.5, ignore=["0.weight"]).load_state_dict(state)

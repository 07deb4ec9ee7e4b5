"""The harness of the accuracy studies: its parts, and all of its steps on a tiny model."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tokenizers")

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "examples" / "accuracy"
MODULES = (
    "contestants",
    "language",
    "measured",
    "paired",
    "narrow",
    "predicted",
    "recovery",
    "report",
    "rows",
    "run",
    "small",
    "study",
    "systems",
    "text",
    "tuning",
)
SOME = "tile-wise:128,atp:128,prune --latency measured,2:4,unstructured"


@pytest.fixture
def scripts(monkeypatch):
    """The folder of the scripts as they see it themselves."""
    monkeypatch.syspath_prepend(SCRIPTS)
    yield
    for name in MODULES:
        sys.modules.pop(name, None)


def test_a_step_goes_on_where_it_ended(scripts, tmp_path):
    from rows import Rows, work_through

    rows, did = Rows(tmp_path / "rows.jsonl"), []

    def work(key):
        did.append(key["n"])
        if key["n"] == 2 and did.count(2) == 1:
            raise ValueError("not yet")
        return {"found": 10 * key["n"]}

    todo = [{"n": number} for number in range(4)]
    work_through(rows, todo[:2], work, 60)
    work_through(rows, todo, work, 60)
    work_through(rows, todo, work, 60)
    assert did == [0, 1, 2, 3, 2]
    assert sorted(row["found"] for row in rows.read()) == [0, 10, 20, 30]
    work_through(rows, [{"n": 9}], work, -1.0)
    assert rows.last(n=9) is None


def test_parts_are_everything_once(scripts):
    from rows import part_of

    todo = list(range(11))
    assert sorted(each for number in range(1, 5) for each in part_of(todo, f"{number}/4")) == todo


def test_intervals_hold_the_mean_and_know_two_levels(scripts):
    from paired import interval

    rng = np.random.default_rng(1)
    items = rng.normal(1.0, 1.0, (1, 400)).repeat(3, axis=0)
    alike = interval(items)
    assert alike.mean == pytest.approx(items.mean())
    assert alike.low < alike.mean < alike.high
    assert alike.high - alike.low == pytest.approx(2 * 1.96 / 20, rel=0.2)  # seeds that agree add nothing
    apart = interval(items + np.array([[-1.0], [0.0], [1.0]]))
    assert apart.high - apart.low > 3 * (alike.high - alike.low)
    assert interval(np.zeros((1, 1))) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("us", "parts"),
    [(60, {0.6: 1.0, 0.64: 0.0}), (61, {0.6: 0.75, 0.64: 0.25}), (59, {0.6: 1.0}), (75, {0.6: 1.0})],
)
def test_contestants_are_compared_at_equal_measured_time(scripts, tmp_path, us, parts):
    """Between two close times of the base its harm is on a line; nothing is extrapolated."""
    import report

    base = report.BASE
    measured = {(base, 0.6): 60, (base, 0.64): 64, (base, 0.8): 80, ("other", 0.6): us}
    harms = {(base, 0.6): 0.3, (base, 0.64): 0.1, (base, 0.8): 0.0, ("other", 0.6): 0.2, ("dense", 1.0): 0.0}
    rows = [
        {"step": "time", "contestant": name, "share": share, "us": {"dense": 100, "sparse": time}}
        for (name, share), time in measured.items()
    ]
    rows += [
        {"step": "tune", "contestant": name, "share": share, "seed": seed, "score": harm}
        for (name, share), harm in harms.items()
        for seed in (0, 1)
    ]
    (tmp_path / report.ROWS).write_text("".join(json.dumps(row) + "\n" for row in rows))
    scores = {
        f"{n}|{share}|{seed}": np.full(5, harm) for (n, share), harm in harms.items() for seed in (0, 1)
    }
    np.savez(tmp_path / report.SCORES, **scores)
    record = report.Record(tmp_path)
    assert record.base_at("other", 0.6) == pytest.approx(parts)
    wanted = sum(part * harms[base, share] for share, part in parts.items())
    cell = record.cell("other", 0.6)
    assert cell.against.mean == pytest.approx(0.2 - wanted)
    assert cell.better == ("2 of 2" if wanted > 0.2 else "0 of 2")


@pytest.mark.slow
def test_all_steps_on_a_tiny_model(scripts, tmp_path, capsys, monkeypatch):
    import report
    from contestants import CLOSE_MIXTURE
    from run import main

    def step(name, *arguments):
        main([name, "--tiny", "--out", str(tmp_path), "--device", "cpu", "--seeds", "0", *arguments])
        return capsys.readouterr().out

    step("train")
    step("masks", "--only", SOME)
    assert "failed" not in step("tune", "--only", SOME)
    assert step("tune", "--only", SOME) == ""
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert sorted(row["contestant"] for row in rows if row["step"] == "tune") == sorted(
        [*SOME.split(","), "dense"]
    )
    found = {row["contestant"]: row for row in rows if row["step"] == "masks"}
    for name in ("tile-wise:128", "atp:128"):
        assert found[name]["predicted_share"] == pytest.approx(found[name]["share"], rel=0.03)
    mixture = found["prune --latency measured"]
    assert mixture["predicted_share"] <= mixture["share"] * (1 + CLOSE_MIXTURE)
    assert found["unstructured"]["sparsity"] == pytest.approx(found["atp:128"]["sparsity"], abs=0.01)
    page, picture = tmp_path / "page.md", tmp_path / "picture.svg"
    page.write_text("before\n<!-- table begins -->\nold\n<!-- table ends -->\nafter\n")
    options = ["--out", tmp_path, "--record", tmp_path / "record", "--page", page, "--picture", picture]
    monkeypatch.setattr(sys, "argv", ["report.py", *map(str, options)])
    report.main()
    assert page.read_text().startswith("before\n")
    assert page.read_text().count("| 90% |") == len(SOME.split(",")) - 1
    assert "old" not in page.read_text()
    assert picture.exists()


def toy_study():
    """A model of two matrices whose batches and losses follow from the seed."""
    from study import Budget, Study

    def build(device):
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))

    def batches(seed, device):
        draw = torch.Generator().manual_seed(seed)
        while True:
            yield (torch.randn(16, 6, generator=draw),)

    def loss(outputs, dense, batch):
        return outputs.square().mean() if dense is None else (outputs - dense).square().mean()

    budget = Budget(train_steps=0, train_rate=0, tune_steps=0, tune_rate=0, calibration_steps=3)
    rest = dict.fromkeys(("scores", "timed", "example", "graph"))
    parts = {"build": build, "batches": batches, "loss": loss, "outputs": lambda model, batch: model(*batch)}
    return Study(
        name="", more_is_better=True, unit="", target=("re:.",), tokens=1, budget=budget, **parts, **rest
    )


def test_importance_of_tiles_is_that_of_the_sum_of_their_rows(scripts):
    from itertools import islice

    from tuning import Trainer

    study, weight = toy_study(), "2.weight"
    trainer = Trainer(study, "cpu")
    found = {height: trainer.importance(5, height)[weight] for height in (1, 2, 128)}
    wanted = {height: np.zeros((4, 8)) for height in found}
    for batch in islice(study.batches(105, "cpu"), 3):
        model = study.build("cpu")
        with torch.autocast("cpu", torch.bfloat16):
            said = model(*batch)
        study.loss(said, None, batch).backward()
        product = (model[2].weight * model[2].weight.grad).detach().numpy()
        for height, sums in wanted.items():
            rows = min(height, 4)
            for first in range(0, 4, rows):
                sums[first : first + rows] += product[first : first + rows].sum(0) ** 2 / rows
    for height, each in found.items():
        np.testing.assert_allclose(each, wanted[height], rtol=1e-5)
        assert each.shape == (4, 8)


def test_costs_are_measured_again_with_the_other_layers_pruned(scripts):
    from itertools import islice

    from tuning import PROBE_BATCHES, Trainer

    study = toy_study()
    trainer = Trainer(study, "cpu")
    importance = trainer.importance(5)
    kept = {name: np.ones(each.shape, bool) for name, each in importance.items()}
    assert trainer.costs(importance, 5, kept) == pytest.approx(trainer.costs(importance, 5))
    kept["0.weight"][:, :3] = False
    before = {name: each.clone() for name, each in trainer.model.state_dict().items()}
    found = trainer.costs(importance, 5, kept)
    pruned = study.build("cpu")
    with torch.no_grad():
        pruned[0].weight[:, :3] = 0
    half = study.build("cpu")
    half.load_state_dict(pruned.state_dict())
    removed = np.sort(importance["2.weight"].sum(0))[:4].sum()
    with torch.no_grad():
        half[2].weight[:, np.argsort(importance["2.weight"].sum(0))[:4]] = 0
        batches = list(islice(study.batches(105, "cpu"), PROBE_BATCHES))
        with torch.autocast("cpu", torch.bfloat16):
            losses = [
                np.mean([float(study.loss(model(*b), study.build("cpu")(*b), b)) for b in batches])
                for model in (half, pruned)
            ]
    assert found["2.weight"] == pytest.approx((losses[0] - losses[1]) / removed, rel=0.02)
    for name, each in trainer.model.state_dict().items():
        assert torch.equal(each, before[name])


@pytest.mark.slow
def test_what_recovery_brings_on_a_tiny_model(scripts, tmp_path, capsys):
    from recovery import VARIANTS, recover
    from run import Run, main, parse_options

    tiny = ["--tiny", "--out", str(tmp_path), "--device", "cpu", "--seeds", "0", "--tune-steps", "2"]
    main(["train", *tiny])
    recover(Run(parse_options(["tune", *tiny])))
    said = capsys.readouterr().out
    assert "failed" not in said
    assert said.count('"recover"') == len(VARIANTS)


def test_losses_of_the_source_systems_are_drawn(scripts, tmp_path, monkeypatch):
    import small
    import systems
    from tuning import Trainer

    monkeypatch.setattr(systems, "SYSTEMS", {"TW": "tile-wise:64", "TVW": "tvw:64"})
    study = small.study(True)
    found = systems.losses(Trainer(study, "cpu"), [0.5, 0.75])
    assert [round(sparsity, 1) for sparsity, _ in found["TW"]] == [0.5, 0.8]
    assert len(found["TVW"]) == 1
    assert found["dense"][0][0] == 0.0
    systems.picture(found, study.unit, tmp_path / "systems.png")
    assert (tmp_path / "systems.png").stat().st_size > 1000


def test_a_report_for_a_page_that_does_not_exist_writes_nothing(scripts, tmp_path, monkeypatch, capsys):
    import report

    options = ["--record", tmp_path, "--page", tmp_path / "no.md"]
    monkeypatch.setattr(sys, "argv", ["report.py", *map(str, options)])
    with pytest.raises(SystemExit, match="2"):
        report.main()
    assert "no.md, which is no file" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())

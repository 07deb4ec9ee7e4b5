"""The study of glyphs: which characters count, what is timed, and that the whole runs in small."""

import gc
import warnings
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("matplotlib")

EXAMPLES = Path(__file__).parents[2] / "examples"


STUDY = "glyphs"
"""Its folder, for the fixture `scripts`."""


def test_cells_without_ink_or_alike_are_left_out(scripts):
    from draw import apart

    cells = np.zeros((5, 4, 4), np.uint8)
    cells[0, 0], cells[1, 0], cells[2, 1], cells[4] = 200, 100, 255, 9
    assert apart(cells) == [0, 2, 4]


def test_fonts_are_closed(scripts):
    from draw import FACES, font_folder, shared_characters

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        characters = shared_characters(font_folder())
        gc.collect()
    assert [str(one.message) for one in caught if one.category is ResourceWarning] == []
    assert {"A", "e", "\N{GREEK SMALL LETTER BETA}"} <= set(characters)
    assert len(FACES) == 16


def test_distorted_images_follow_from_the_generator_alone(scripts):
    from draw import CELL, Distortion, distort

    cells = torch.randint(0, 255, (6, CELL, CELL), dtype=torch.uint8)
    one, two, other = (
        distort(cells, 16, Distortion(), torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)
    )
    assert one.shape == (6, 1, 16, 16)
    assert torch.equal(one, two)
    assert not torch.equal(one, other)


def test_the_timed_network_says_what_the_trained_one_says(scripts):
    import copy

    from network import ResidualNetwork, TimedNetwork

    torch.manual_seed(0)
    model = ResidualNetwork(7, (8, 16)).double()
    for _ in range(3):
        model(torch.randn(4, 1, 16, 16, dtype=torch.float64))  # norms gather what they normalise by
    images = torch.randn(4, 1, 16, 16, dtype=torch.float64)
    torch.testing.assert_close(TimedNetwork(copy.deepcopy(model))(images), model.eval()(images))


@pytest.mark.parametrize("stage", [0, 1])
def test_a_pruned_network_is_timed_as_it_is_rewritten(scripts, stage):
    import copy

    from network import ResidualNetwork, TimedNetwork

    from prunecast.torch import sparsify

    torch.manual_seed(0)
    network = TimedNetwork(ResidualNetwork(7, (8, 16)).eval()).network.half()
    pruned = copy.deepcopy(network)
    how = {"gpu": "h200-sxm", "max_tokens": 8, "sparsity": 0.5, "convolutions": True, "quiet": True}
    sparsify(pruned, "tile-wise:8", target=[f"re:stages\\.[{stage}1]\\..*"], **how)
    network.load_state_dict(pruned.state_dict())
    images = torch.randn(4, 1, 16, 16).half()
    with torch.no_grad():
        wanted = TimedNetwork(network)(images)
        torch.testing.assert_close(TimedNetwork(pruned)(images), wanted, rtol=0.01, atol=0.001)
    kinds = {str(getattr(node.target, "__name__", "")) for node in pruned.planes_graph.nodes}
    assert "as_images" not in kinds  # planes up to the mean


@pytest.mark.parametrize("name", ["accuracy/language.py", "glyphs/glyphs.py", "retrieval/retrieval.py"])
def test_all_timed_passes_of_a_study_read_the_same(scripts, monkeypatch, name):
    """Their outputs are compared: of other noise, those of a trained network differ by 6 to 20 %."""
    from study import load_study

    monkeypatch.syspath_prepend((EXAMPLES / name).parent)
    one, two = (load_study(EXAMPLES / name, tiny=True).example("cpu") for _ in range(2))
    assert all(torch.equal(first, second) for first, second in zip(one, two, strict=True))


def test_products_of_the_graph_are_the_convolutions_of_the_network(scripts):
    from glyphs import TINY, graph
    from network import ResidualNetwork

    model, found = ResidualNetwork(3, TINY.widths), {}
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Conv2d):

            def hook(module, _, y, name=name):
                k = module.weight[0].numel()
                found[f"{name}.weight"] = (y.shape[1], k, y.shape[0] * y.shape[2] * y.shape[3])

            module.register_forward_hook(hook)
    model(torch.zeros(TINY.timed_images, 1, TINY.pixels, TINY.pixels))
    products = graph(TINY).products.items()
    assert {name: (o.m, o.k, o.n) for name, o in products if o.convolution is not None} == found


@pytest.mark.parametrize("pattern", ["tile-wise:128", "atp:128:guided", "block:64x64", "unstructured"])
@pytest.mark.parametrize("rows", [64, 128, 512])
def test_tiles_are_no_higher_than_a_matrix(scripts, pattern, rows):
    from predicted import fitting

    rule = fitting(pattern, rows)
    assert rule.canonical == (pattern.replace("128", "64") if rows == 64 else pattern)
    needs = {"": np.random.default_rng(0).random((rows, 128), np.float32)}
    timed = rule.timed_by(lambda name, kept: kept.density) if rule.needs_times else rule
    assert timed.prune(needs, 0.5)[""].shape == (rows, 128)


def test_a_search_times_convolutions_as_they_run(scripts):
    from glyphs import TINY, graph
    from predicted import Predictor

    from prunecast.patterns import parse_pattern

    names, predictor = (
        ("stages.0.0.conv1.weight", "stages.1.1.conv2.weight"),
        Predictor(graph(TINY), "h200-sxm"),
    )
    draw, matrices = np.random.default_rng(0), predictor.matrices
    importance = {n: draw.random((matrices[n].m, matrices[n].k), np.float32) for n in names}
    search = predictor.search(importance, ("atp",))
    assert search.dense_seconds() == pytest.approx({name: predictor.dense[name] for name in names})
    tried = search.realise({name: len(search.options[name]) // 2 for name in names})
    for name, found in tried.items():
        option = search.options[name][len(search.options[name]) // 2]
        rule = parse_pattern(option.pattern)
        kept = rule.map(rule.prune({"": importance[name]}, option.sparsity)[""])
        assert found.seconds == pytest.approx(predictor.layer_seconds(name, kept), rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("study", ["glyphs/glyphs.py", "retrieval/retrieval.py"])
def test_the_harness_goes_through_a_study_in_small(scripts, study, tmp_path):
    pytest.importorskip("transformers")
    from rows import Rows
    from run import main

    given = ["--study", str(EXAMPLES / study), "--tiny", "--device", "cpu", "--seeds", "0"]
    for step in ("train", "masks", "tune"):
        main([step, *given, "--out", str(tmp_path), "--only", "tile-wise:128"])
    rows = Rows(tmp_path / "rows.jsonl")
    masks, tuned = rows.last(step="masks"), rows.last(step="tune", contestant="tile-wise:128")
    assert masks["predicted_share"] == pytest.approx(masks["share"], rel=0.03)
    scores = np.load(next((tmp_path / "scores").glob("tile-wise*")))
    assert tuned["score"] == pytest.approx(float(scores.mean()), abs=1e-3)
    assert set(np.unique(scores)) <= {0.0, 1.0}

"""The retrieval study: what is read of WordNet, and what an embedding does not depend on."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
LINES = """  1 This line is of the licence | nothing "in it is a sentence of WordNet"
00001740 29 v 01 breathe 0 000 | draw air in; "short"; "I can breathe when the air is clean"
00002325 29 v 01 respire 1 000 | take up oxygen
00002573 29 v 01 choke 0 000 | breathe hard; "She choked"
"""


STUDY = "retrieval"
"""Its folder, for the fixture `scripts`."""


def test_a_synset_gives_its_gloss_and_its_first_long_sentence(scripts, tmp_path):
    from wordnet import read_wordnet

    for part in ("adj", "adv", "noun", "verb"):
        (tmp_path / f"data.{part}").write_text(LINES if part == "verb" else "")
    found = read_wordnet(tmp_path)
    assert found.pairs == [("I can breathe when the air is clean", "draw air in")]
    assert found.alone == ["take up oxygen", "breathe hard"]


def test_what_fills_a_text_up_changes_no_embedding(scripts):
    torch, hf = pytest.importorskip("torch"), pytest.importorskip("transformers")
    from encoder import embed

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    model = hf.BertModel(hf.BertConfig(vocab_size=50, **sizes), add_pooling_layer=False).eval()
    ids = torch.randint(1, 50, (3, 7))
    with torch.no_grad():
        short, long = embed(model, ids), embed(model, torch.nn.functional.pad(ids, (0, 9)))
    torch.testing.assert_close(short, long, rtol=1e-4, atol=1e-5)  # fp32, sums in another order
    torch.testing.assert_close(short.norm(dim=1), torch.ones(3))


def test_ranks_are_the_places_among_all_glosses(scripts):
    torch, _ = pytest.importorskip("torch"), pytest.importorskip("transformers")
    from encoder import embed, random_encoder
    from retrieval import TINY, random_texts, ranks

    model, texts = random_encoder().eval(), random_texts()
    mixed = texts._replace(held_out=texts.held_out._replace(glosses=texts.tuning.glosses))
    with torch.no_grad():
        sentences, glosses = (embed(model, ids) for ids in mixed.held_out)
    similar = sentences @ glosses.T
    places = [
        1 + sum(bool(row[other] > row[own]) for other in range(len(row))) for own, row in enumerate(similar)
    ]
    assert ranks(model, mixed, TINY).tolist() == places
    assert len(set(places)) > 1


def test_only_another_model_is_apart_from_the_dense_one(scripts):
    torch, _ = pytest.importorskip("torch"), pytest.importorskip("transformers")
    from encoder import random_encoder, states
    from retrieval import loss, random_texts

    batch, model = (
        tuple(ids[:4] for ids in (*random_texts().tuning, random_texts().alone)),
        random_encoder().eval(),
    )
    with torch.no_grad():
        dense = states(model, torch.cat(batch))
        model.encoder.layer[0].output.dense.weight[:, ::2] = 0.0
        other = states(model, torch.cat(batch))
    assert float(loss(dense, dense, batch)) == pytest.approx(0.0, abs=1e-6)
    assert loss(other, dense, batch) > 1e-4
    assert loss(other, None, batch) > 0


def test_products_of_the_graph_are_the_matrices_of_the_encoder(scripts):
    pytest.importorskip("transformers")
    from encoder import random_encoder
    from retrieval import TINY, graph

    model = random_encoder()
    found = {name: (o.m, o.k) for name, o in graph(model, TINY).products.items()}
    linear = {
        f"{name}.weight": module
        for name, module in model.encoder.named_modules()
        if hasattr(module, "in_features")
    }
    assert found == {f"encoder.{name}": tuple(module.weight.shape) for name, module in linear.items()}


@pytest.mark.slow
def test_the_tutorial_makes_a_pruned_checkpoint(tmp_path):
    torch, hf = pytest.importorskip("torch"), pytest.importorskip("transformers")
    from safetensors.torch import load_file, save_file

    torch.manual_seed(0)
    sizes = {"hidden_size": 256, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 1024}
    model = hf.BertModel(hf.BertConfig(vocab_size=60, **sizes), add_pooling_layer=False)
    model.half().save_pretrained(tmp_path / "in" / "model")
    ids = torch.randint(1, 60, (3, 24, 10)).to(torch.uint16)
    save_file(
        {"sentences": ids[0], "glosses": ids[1], "alone": ids[2]}, tmp_path / "in" / "pairs.safetensors"
    )
    command = [EXAMPLES / "retrieval" / "tutorial.sh", tmp_path / "in", tmp_path / "work", "80%", "6", "4"]
    environment = {
        **os.environ,
        "PYTHONPATH": str(EXAMPLES.parent / "src"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    done = subprocess.run(
        list(map(str, command)), env=environment, capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("recall@1") == 3
    tuned = load_file(tmp_path / "work" / "tuned" / "model.safetensors")
    pruned = load_file(tmp_path / "work" / "pruned" / "model.safetensors")
    zeros = {
        name: weight == 0
        for name, weight in pruned.items()
        if name.startswith("encoder") and weight.dim() == 2
    }
    assert any(zero.float().mean() > 0.2 for zero in zeros.values())
    for name, zero in zeros.items():
        assert not tuned[name][zero].any()


@pytest.mark.parametrize(
    "folder",
    sorted(each.parent for each in (EXAMPLES.parent / "benchmarks" / "measured").glob("study-*/*.npz")),
)
def test_tables_say_what_the_record_says(scripts, monkeypatch, folder):
    """Means and times; bounds need thousands of draws, and have a test of their own."""
    import report
    from paired import Interval
    from report import Record

    monkeypatch.setattr(report, "interval", lambda cube: Interval(float(cube.mean()), 0.0, 0.0))
    pages = {
        "study-retrieval": "retrieval",
        "study-language-narrow": "language",
        "study-glyphs-planes": "glyphs",
    }
    texts = [folder / "tables.md"]
    if folder.name in pages:
        texts.append(EXAMPLES.parent / "docs" / "studies" / f"{pages[folder.name]}.md")
    for text in texts:
        lines = text.read_text(encoding="utf-8").splitlines()
        for cell in Record(folder).cells():
            said = [cell.contestant, f"{cell.sparsity:.0%}", f"{cell.harm.mean:+.4f}"]
            said += [] if cell.measured is None else [f"{cell.measured:.1%}"]
            said += [] if cell.against is None else [f"{cell.against.mean:+.4f}", cell.better]
            assert any(all(each in line for each in said) for line in lines), said

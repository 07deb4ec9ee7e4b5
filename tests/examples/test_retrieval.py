"""The retrieval study: what is read of WordNet, and what an embedding does not depend on."""

import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "examples" / "retrieval"
LINES = """  1 This line is of the licence | nothing "in it is a sentence of WordNet"
00001740 29 v 01 breathe 0 000 | draw air in; "short"; "I can breathe when the air is clean"
00002325 29 v 01 respire 1 000 | take up oxygen
00002573 29 v 01 choke 0 000 | breathe hard; "She choked"
"""


@pytest.fixture
def scripts(monkeypatch):
    """The folder of the scripts as they see it themselves."""
    monkeypatch.syspath_prepend(SCRIPTS)
    names = [path.stem for path in SCRIPTS.glob("*.py")]
    for name in names:
        sys.modules.pop(name, None)
    yield
    for name in names:
        sys.modules.pop(name, None)


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

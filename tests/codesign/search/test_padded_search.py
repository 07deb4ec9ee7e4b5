"""What padding would gain in a search: the result of the same search with a multiple of 8 tokens."""

import re
from dataclasses import replace

import pytest

from prunecast.codesign.search import Targets, prune_model
from prunecast.codesign.search.floor import fastest_options
from prunecast.codesign.search.padded_search import PaddedSearch
from prunecast.codesign.search.prune_model import search_of
from prunecast.codesign.search.target import prune_to_targets
from prunecast.errors import BadInput

OPTIONS = {"gpu": "h200-sxm", "engine": "model", "runtime": "engine", "families": ("atp",)}


def test_a_refusal_names_the_fastest_padded_model_if_that_is_faster() -> None:
    with pytest.raises(BadInput) as refusal:
        prune_model("bert-small", Targets(latency_share=0.5), tokens=1001, **OPTIONS)
    said = re.search(
        r"padded to --workload (\S+) the fastest model would need ([\d.]+) us", str(refusal.value)
    )
    assert said is not None
    assert said[1] == "batch:1x1008/padded"
    padded = search_of("bert-small", workload=said[1], **OPTIONS)
    padded.prepare()
    choice = fastest_options(padded, {}).choice
    seconds = {name: float(padded.options[name].seconds[place]) for name, place in choice.items()}
    assert float(said[2]) == pytest.approx(1e6 * padded.total(seconds, padded.sparse(choice)), abs=0.06)
    floor = re.search(r"the floor is ([\d.]+) us", str(refusal.value))
    assert floor is None or float(said[2]) < float(floor[1])


@pytest.mark.parametrize(("tokens", "runtime"), [(1008, "engine"), (1001, "torch")])
def test_multiples_of_8_and_torch_which_pads_itself_need_no_padding(tokens: int, runtime: str) -> None:
    with pytest.raises(BadInput) as refusal:
        prune_model(
            "bert-small", Targets(latency_share=0.05), tokens=tokens, **{**OPTIONS, "runtime": runtime}
        )
    assert "padded to" not in str(refusal.value)


def test_a_remark_is_the_importance_that_the_padded_model_keeps_in_the_same_time() -> None:
    search = search_of("bert-small", tokens=1001, **OPTIONS)
    padded = search_of("bert-small", workload="batch:1x1008/padded", **OPTIONS)
    search.prepare()
    padded.prepare()
    targets = Targets(latency_share=0.97)
    best = prune_to_targets(padded, Targets(latency_s=search.limits(targets).seconds))
    assert best.sparsity > 0.0
    case = PaddedSearch(search, targets, lambda workload: padded)
    remark = case.remark(replace(best, retained_importance=0.5 * best.retained_importance), prune_to_targets)
    kept = f"{best.retained_importance:.1%} of the importance"
    assert remark == f"padded to --workload batch:1x1008/padded the same time would keep {kept}"
    assert not case.remark(best, prune_to_targets)

"""Look-up of standard models by the names that people write.

Names may be in any case, be identifiers of a model hub (`organisation/model`), and have endings such as
`-instruct`.
"""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache

from prunecast.files import packaged_toml
from prunecast.workload.graph.image_nets import image_nets
from prunecast.workload.graph.shapes import transformers

WORKLOADS = (*image_nets(), *transformers())
"""Names of the standard models."""
_ENDING = re.compile(
    r"-(hf|base|instruct|it|pt|chat|cased|uncased|original|deduped|bf16|fp16|v\d+(\.\d+)*|2[3-6](0[1-9]|1[0-2]))$"
)
"""Endings of identifiers whose models have the same shapes: tuned for chats, another training or
training data, a date."""
_HUB = re.compile(r"\w[\w.-]*/[\w.-]+")


@cache
def _tables() -> Mapping[str, Mapping[str, str]]:
    return packaged_toml(__package__, "names.toml")


def plain_name(text: str) -> str:
    """Return a name in lower case, without organisation and `meta-`, and with hyphens for underscores."""
    return text.rpartition("/")[2].lower().replace("_", "-").removeprefix("meta-")


def known_name(text: str) -> str | None:
    """Return the standard model for a name, such as `llama-3.1-8b` for `meta-llama/Llama-3.1-8B`.

    Return None for an unknown name.
    """
    if text in WORKLOADS:
        return text
    name = plain_name(text)
    while name not in WORKLOADS and name not in _tables()["also"]:
        shorter = _ENDING.sub("", name)
        if shorter == name:
            return None
        name = shorter
    return _tables()["also"].get(name, name)


def is_hub_name(text: str) -> bool:
    """Return True if a text has the form of an identifier of a model hub, `organisation/model`."""
    return _HUB.fullmatch(text) is not None


def near_names(text: str) -> list[str]:
    """Return at most five standard models whose names resemble a text."""
    name = plain_name(text)
    letters = name.replace("-", "")
    beginning = [each for each in WORKLOADS if len(letters) > 2 and each.replace("-", "").startswith(letters)]
    return (beginning or get_close_matches(name, WORKLOADS, n=3, cutoff=0.8))[:5]


def nearest_or_some(text: str) -> str:
    """Return a sentence that names the standard models near a text, or one model of each beginning."""
    near = near_names(text)
    if near:
        return f"nearest standard model{'s' if len(near) > 1 else ''}: {', '.join(near)}"
    first = {re.split(r"[^a-z]", name)[0]: name for name in reversed(WORKLOADS)}
    some = ", ".join(sorted(first.values(), key=WORKLOADS.index))
    return f"standard models: {some} and others that begin alike"


def why_uncounted(text: str) -> str:
    """Return the reason why a well-known model has no graph in this package; empty for other names."""
    reasons = _tables()["uncounted"]
    return next((reasons[name] for name in reasons if plain_name(text).startswith(name)), "")

"""Glosses and example sentences of WordNet's data files, as Debian's package `wordnet-base` installs them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

PARTS = ("adj", "adv", "noun", "verb")
LEAST_LETTERS = 25
"""Fewest letters of a sentence; shorter ones say too little."""
_QUOTED = re.compile(r'"([^"]*)"')


class Pair(NamedTuple):
    """A sentence, and what the word that it illustrates means."""

    sentence: str
    gloss: str


class Glosses(NamedTuple):
    """What the data files hold."""

    pairs: list[Pair]
    alone: list[str]
    """Glosses of synsets without a sentence of enough letters."""


def read_wordnet(folder: Path) -> Glosses:
    """One pair a synset, in the order of the files: its gloss and its first long enough sentence."""
    pairs, alone = [], []
    for part in PARTS:
        for line in (folder / f"data.{part}").read_text(encoding="utf-8").splitlines():
            _, bar, said = line.partition(" | ")
            if not bar or line.startswith(" "):
                continue
            gloss = said.partition('"')[0].strip(" ;")
            sentences = [each for each in _QUOTED.findall(said) if len(each) >= LEAST_LETTERS]
            if sentences and gloss:
                pairs.append(Pair(sentences[0], gloss))
            elif gloss:
                alone.append(gloss)
    return Glosses(pairs, alone)

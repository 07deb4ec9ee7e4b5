"""Text that every machine with Python has: sources and documentation of what is installed, as words' numbers.

Files of the standard library and of installed packages, each content once, split by file. Words are those of
a byte-pair encoding that is learnt from a part of the training files.
"""

from __future__ import annotations

import hashlib
import os
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

ENDINGS = (".py", ".pyi", ".rst", ".md", ".txt")
FEWEST_FILE_BYTES, MOST_FILE_BYTES = 200, 400_000
READ_BEYOND = 4
"""Times the bytes that are wanted after which no further file is read."""
HELD_OUT = 10
"""One file in so many is held out."""
LEARNT_BYTES = 24_000_000


class Text(NamedTuple):
    """Numbers of words."""

    training: npt.NDArray[np.uint16]
    """(words,), file behind file."""
    judged: npt.NDArray[np.uint16]
    """(windows, context + 1), each of another held-out file."""


def read_files(most_bytes: int) -> dict[str, bytes]:
    """Digest -> content of files, each once, up to so many bytes in all.

    The order is that of digests, so that a part of the files is of all packages that were read.
    """
    found: dict[str, bytes] = {}
    size = 0
    for path in _paths():
        content = path.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        if len(content) >= FEWEST_FILE_BYTES and digest not in found:
            found[digest] = content
            size += len(content)
        if size > READ_BEYOND * most_bytes:
            break
    ends = np.cumsum([len(found[digest]) for digest in sorted(found)])
    return {
        digest: found[digest] for digest, end in zip(sorted(found), ends, strict=True) if end <= most_bytes
    }


def _paths() -> Iterator[Path]:
    """Files of the standard library and of installed packages."""
    for root in sorted({sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib")}):
        for folder, _, names in os.walk(root):
            for name in sorted(names):
                path = Path(folder, name)
                if name.endswith(ENDINGS) and path.is_file() and path.stat().st_size <= MOST_FILE_BYTES:
                    yield path


def read_text(words: int, most_bytes: int, context: int, judged: int) -> Text:
    """The text, kept in a file of the temporary folder, since reading it takes half a minute."""
    path = Path(tempfile.gettempdir()) / f"prunecast-text-{words}-{most_bytes}-{context}-{judged}.npz"
    if not path.exists():
        found = _made(words, most_bytes, context, judged)
        unfinished = path.with_name(f"{os.getpid()}-{path.name}")
        np.savez(unfinished, **found._asdict())
        unfinished.replace(path)
    with np.load(path) as stored:
        return Text(stored["training"], stored["judged"])


def _made(words: int, most_bytes: int, context: int, judged: int) -> Text:
    files = read_files(most_bytes)
    texts = {digest: content.decode("utf-8", "replace") for digest, content in files.items()}
    held_out = [text for digest, text in texts.items() if int(digest[:8], 16) % HELD_OUT == 0]
    training = [text for digest, text in texts.items() if int(digest[:8], 16) % HELD_OUT]
    encode = _learnt(training, words)
    windows = [each[: context + 1] for each in encode(held_out) if len(each) > context][:judged]
    return Text(np.concatenate(encode(training)), np.stack(windows))


def _learnt(texts: list[str], words: int):
    """A function from texts to arrays of words' numbers."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    part, size = [], 0
    for text in texts:
        if size < LEARNT_BYTES:
            part.append(text)
            size += len(text)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=words, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(part, trainer)
    return lambda given: [np.array(each.ids, np.uint16) for each in tokenizer.encode_batch_fast(given)]

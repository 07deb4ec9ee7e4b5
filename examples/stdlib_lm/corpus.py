"""Text of the Python standard library: which files, how they are split, and windows cut from the bytes."""

from __future__ import annotations

import hashlib
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

EXCLUDED_FOLDERS = frozenset({"site-packages", "dist-packages", "test", "tests", "idle_test"})
EXCLUDED_NAME_STARTS = ("_sysconfigdata", "sitecustomize")
"""Files about one machine's build or set-up, which are no library text."""

FILE_END = b"\0"
VALIDATION_ONE_IN = 20
EVALUATION_WINDOWS = 256


@dataclass(frozen=True)
class Corpus:
    """Both splits as bytes, every file followed by `FILE_END`."""

    training: bytes
    validation: bytes
    training_file_count: int
    validation_file_count: int

    @property
    def sha256(self) -> str:
        """Hash of the training bytes followed by the validation bytes."""
        return hashlib.sha256(self.training + self.validation).hexdigest()

    @property
    def size_bytes(self) -> int:
        """Bytes of both splits together."""
        return len(self.training) + len(self.validation)


def is_validation_file(relative_path: str) -> bool:
    """Whether the file, named relative to the library folder with '/', is held out: about one in 20."""
    digest = hashlib.sha256(relative_path.encode()).digest()
    return int.from_bytes(digest[:4], "big") % VALIDATION_ONE_IN == 0


def library_files(library: Path) -> list[str]:
    """Relative paths of the library's .py files, sorted, without tests and installed packages."""
    relative = (path.relative_to(library) for path in library.rglob("*.py") if path.is_file())
    return sorted(
        path.as_posix()
        for path in relative
        if not EXCLUDED_FOLDERS.intersection(path.parts) and not path.name.startswith(EXCLUDED_NAME_STARTS)
    )


def read_corpus(library: Path | None = None) -> Corpus:
    """Reads and splits the library of the running interpreter, or the one in the folder given."""
    folder = library or Path(sysconfig.get_path("stdlib"))
    files = library_files(folder)
    validation = [name for name in files if is_validation_file(name)]
    training = [name for name in files if not is_validation_file(name)]
    return Corpus(_joined(folder, training), _joined(folder, validation), len(training), len(validation))


def _joined(folder: Path, names: list[str]) -> bytes:
    return b"".join((folder / name).read_bytes() + FILE_END for name in names)


def bytes_tensor(data: bytes, device: torch.device) -> Tensor:
    """The bytes as one uint8 vector on the device."""
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).to(device)


def windows_at(data: Tensor, starts: Tensor, length_bytes: int) -> Tensor:
    """Windows (number of starts, length_bytes) of the vector, as int64."""
    offsets = torch.arange(length_bytes, device=data.device)
    return data[starts[:, None] + offsets].long()


def random_windows(data: Tensor, count: int, length_bytes: int, generator: torch.Generator) -> Tensor:
    """Windows (count, length_bytes) that start anywhere in the vector, drawn on the data's device."""
    last_start = data.numel() - length_bytes
    starts = torch.randint(last_start + 1, (count,), generator=generator, device=data.device)
    return windows_at(data, starts, length_bytes)


def even_windows(data: Tensor, count: int, length_bytes: int) -> Tensor:
    """Windows (count, length_bytes) with starts spread evenly over the whole vector."""
    last_start = data.numel() - length_bytes
    starts = torch.arange(count, device=data.device) * last_start // max(count - 1, 1)
    return windows_at(data, starts, length_bytes)

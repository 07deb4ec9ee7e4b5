"""`write_weights`: a dense checkpoint whose pruned weights are zeros. Any tool can read it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.files import aside


def write_weights(
    path: str | Path, arrays: Mapping[str, npt.NDArray[Any]], metadata: Mapping[str, str] | None = None
) -> None:
    """Write arrays to a `.safetensors` file, whole or not at all.

    The file is written under another name in the same folder and then renamed, so that a reader never
    sees half of it and a failure leaves an older file as it was.

    Parameters
    ----------
    path : ends in `.safetensors`
    arrays : name -> array of any shape, of a type that safetensors stores
    metadata : text entries for the header

    Raises
    ------
    BadInput : another suffix, nothing to write, metadata that is not text, or a file that cannot be written

    """
    import safetensors
    from safetensors.numpy import save_file

    final = Path(path)
    texts = dict(metadata or {})
    if final.suffix.lower() != ".safetensors":
        raise BadInput(f"{final}: weights are written to .safetensors, got {final.suffix or 'no suffix'!r}")
    if not arrays:
        raise BadInput(f"{final}: no array to write")
    if not all(isinstance(text, str) for entry in texts.items() for text in entry):
        raise BadInput(f"{final}: metadata must be text to text, got {texts!r:.80}")
    # save_file writes the memory behind an array as it lies there, whatever its strides
    whole = {_utf8(name): np.ascontiguousarray(array) for name, array in arrays.items()}
    with aside(final) as unfinished:
        try:
            save_file(whole, unfinished, metadata=texts or None)
            unfinished.chmod(0o644)  # save_file leaves 0600, which others could not read
        except (OSError, safetensors.SafetensorError) as error:
            raise BadInput(f"{final}: cannot be written: {' '.join(str(error).split())}") from error


def _utf8(name: str) -> str:
    """The name, bytes spelled out that are no text: a tensor may be called like its file."""
    return name.encode("utf-8", "backslashreplace").decode()

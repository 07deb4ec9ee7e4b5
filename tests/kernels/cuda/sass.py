"""Instructions of a cubin, read without a GPU."""

import importlib.util
import re
import subprocess
from collections import Counter
from pathlib import Path

from tests.kernels.cuda.compiled import recorded

counted: dict[str, Counter[str]] = {}
"""Instructions of each cubin that was disassembled, by the cubin's name."""


def opcodes(cubin: Path) -> Counter[str]:
    """How often each SASS instruction stands in the cubin, without operands; by the record if it is empty."""
    known = recorded().get(cubin.stem, {}).get("opcodes")
    if cubin.stat().st_size == 0:
        assert known is not None, f"renew the record: {cubin.stem} has no instructions (compiled.py)"
        return Counter(known)
    found = counted[cubin.stem] = _disassembled(cubin)
    assert known in (None, found), f"renew the record: {cubin.stem} has other instructions (compiled.py)"
    return found


def _disassembled(cubin: Path) -> Counter[str]:
    text = subprocess.run(
        [_disassembler(), "-c", str(cubin)], capture_output=True, text=True, check=True
    ).stdout
    return Counter(re.findall(r"^\s*/\*\w+\*/\s+(?:@!?U?P\w+ )?([A-Z][\w.]*)", text, re.MULTILINE))


def _disassembler() -> str:
    package = importlib.util.find_spec("nvidia.cu13")
    assert package is not None
    assert package.submodule_search_locations is not None
    return str(Path(package.submodule_search_locations[0]) / "bin" / "nvdisasm")

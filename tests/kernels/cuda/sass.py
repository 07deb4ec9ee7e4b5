"""Instructions of a cubin, read without a GPU."""

import importlib.util
import re
import subprocess
from collections import Counter
from pathlib import Path


def opcodes(cubin: Path) -> Counter[str]:
    """How often each SASS instruction stands in the cubin, without operands."""
    text = subprocess.run(
        [_disassembler(), "-c", str(cubin)], capture_output=True, text=True, check=True
    ).stdout
    return Counter(re.findall(r"^\s*/\*\w+\*/\s+(?:@!?U?P\w+ )?([A-Z][\w.]*)", text, re.MULTILINE))


def _disassembler() -> str:
    package = importlib.util.find_spec("nvidia.cu13")
    assert package is not None
    assert package.submodule_search_locations is not None
    return str(Path(package.submodule_search_locations[0]) / "bin" / "nvdisasm")

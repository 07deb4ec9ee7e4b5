"""What the compiler said of the kernels that tests compile, by the hash of their sources and options.

NVRTC needs about a second for a kernel, and its answer depends on nothing but the sources, the options and
its own version. `compiled.json` therefore has registers and shared memory of all kernels that compile without
spills and warnings and, of those whose instructions a test counts, the counts. Tests compile what the record
lacks, which after a change of a source is each kernel that includes it, and one of `ANEW_OF` others, which
must be as recorded.

    python -m tests.kernels.cuda.compiled [--processes 2]

compiles all kernels of the tests and writes the record anew.
"""

import argparse
import contextlib
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from prunecast.kernels.device import build

__all__ = ["ANEW", "RECORD", "Compiler", "cubin_name", "recorded"]

RECORD = Path(__file__).with_name("compiled.json")
ANEW = "PRUNECAST_COMPILED"
"""Environment variable. If it names a folder, all kernels are compiled, and each process of the tests writes
what it found into a file of this folder: `kernels` as in the record, and `cubins`, the SHA-256 of each cubin
by source and options, by which two checkouts can be compared."""
ANEW_OF = 16
"""One of so many recorded kernels is compiled nevertheless, by its hash. Kind: choice, for time."""
Said = dict[str, Any]
"""`registers` and `shared_bytes` of a kernel and, if a test counts them, its `opcodes`."""


def versions() -> dict[str, str]:
    """The installed compiler and disassembler, "" if absent: others may allocate registers differently."""
    found = dict.fromkeys(("nvidia-cuda-nvrtc", "nvidia-cuda-nvdisasm"), "")
    for name in found:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


@cache
def recorded() -> dict[str, Said]:
    """Recorded kernels by name; none if all are to be compiled, or if other versions are installed."""
    record = json.loads(RECORD.read_text())
    return {} if ANEW in os.environ or record["versions"] != versions() else dict(record["kernels"])


def cubin_name(source: Path, folders: Sequence[Path], options: list[str]) -> str:
    """The name by which the cache of cubins keeps a kernel; it ends with the hash of sources and options."""
    arch = options[0].removeprefix("--gpu-architecture=")
    return f"{source.stem}-{arch}-{build._key(source, folders, options)}"


def clean(log: str) -> Said | None:
    """Registers and shared memory by the compiler's log; None if it spills or the log has a warning."""
    found = build.resources_in(log)
    if found.pop("spill_bytes") or "warning" in log.lower() or re.search(r"C\d{4}|serialized", log):
        return None
    return found


class Compiler:
    """Stands in for the compiler in tests: answers with the record, or asks the compiler.

    Parameters
    ----------
    run : `build._run_nvrtc`, or what stands for it
    known : kernels by name
    """

    def __init__(
        self, run: Callable[[Path, Sequence[Path], list[str]], tuple[bytes, str]], known: dict[str, Said]
    ) -> None:
        self.run, self.known = run, known
        self.found: dict[str, Said] = {}
        """Kernels that were compiled and are clean."""
        self.cubins: dict[str, str] = {}
        """SHA-256 of each cubin that was compiled, by source and options."""

    def __call__(self, source: Path, folders: Sequence[Path], options: list[str]) -> tuple[bytes, str]:
        """Cubin and log. Of a recorded kernel the cubin is empty, and the log has what the record has."""
        name = cubin_name(source, folders, options)
        known = self.known.get(name)
        if known is not None and int(name.rpartition("-")[2], 16) % ANEW_OF:
            return b"", f"Used {known['registers']} registers, {known['shared_bytes']} bytes smem"
        cubin, log = self.run(source, folders, options)
        self.cubins[" ".join([source.name, *options])] = hashlib.sha256(cubin).hexdigest()
        said = clean(log)
        if known is not None:
            assert said == {key: known[key] for key in ("registers", "shared_bytes")}, f"renew {RECORD.name}"
        if said is not None:
            self.found[name] = said
        return cubin, log


def main() -> None:
    """Run the tests that compile, with the record set aside, and write what they found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", default="2")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pytest", "-q", "-n", asked.processes, str(RECORD.parent)]
        subprocess.run(command, check=True, env={**os.environ, ANEW: folder})
        kernels: dict[str, Said] = {}
        for part in sorted(Path(folder).glob("*.json")):
            for name, said in json.loads(part.read_text())["kernels"].items():
                kernels.setdefault(name, {}).update(said)
    # Kernels that are not clean have instructions only: they are compiled in each run
    lines = [
        f"{json.dumps(name)}: {json.dumps(said, sort_keys=True)}"
        for name, said in sorted(kernels.items())
        if "registers" in said
    ]
    text = ",\n".join(lines)
    RECORD.write_text(f'{{"versions": {json.dumps(versions())}, "kernels": {{\n{text}\n}}}}\n')
    print(f"{len(lines)} kernels in {RECORD}")


if __name__ == "__main__":
    main()

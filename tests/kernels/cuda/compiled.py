"""Registers, shared memory and instruction counts of the kernels that tests compile, by hash of sources and
options.

NVRTC needs about a second for a kernel, and the result depends on nothing but the sources, the options and
the version of NVRTC. `compiled.json` therefore has registers and shared memory of all kernels that compile
without spills and warnings and, of those whose instructions a test counts, the counts. Tests compile the
kernels that are not recorded (after a change of a source, each kernel that includes it) and a sample of the
others, which must be as recorded.

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

__all__ = ["ANEW", "RECORD", "Compiler", "is_sampled", "recorded"]

RECORD = Path(__file__).with_name("compiled.json")
GPU = Path("/dev/nvidia0")
"""Device file of the first GPU of a machine."""
ANEW = "PRUNECAST_COMPILED"
"""Environment variable. If it names a folder, all kernels are compiled, and each process of the tests writes
the results into a file of this folder: `kernels` as in the record, and `cubins`, the SHA-256 of each cubin by
source and options, by which two checkouts can be compared."""
ANEW_OF = 16
"""One in `ANEW_OF` recorded kernels, chosen by hash, is compiled anyway. Kind: choice, for time."""
Resources = dict[str, Any]
"""`registers` and `shared_bytes` of a kernel and, if a test counts them, its `opcodes`."""


def versions() -> dict[str, str]:
    """Return the versions of the installed compiler and disassembler, "" if absent."""
    found = dict.fromkeys(("nvidia-cuda-nvrtc", "nvidia-cuda-nvdisasm"), "")
    for name in found:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


@cache
def recorded() -> dict[str, Resources]:
    """Return the recorded kernels by name; none if all are to be compiled.

    These are compiled for a new record, by other versions of the compiler, which may allocate registers
    differently, and on a machine with a GPU, where tests run the cubins.
    """
    record = json.loads(RECORD.read_text())
    is_new = ANEW in os.environ or record["versions"] != versions()
    return {} if is_new or GPU.exists() else dict(record["kernels"])


def is_sampled(name: str) -> bool:
    """Return True if a recorded kernel is compiled anyway; `name` is its `build.cubin_name`."""
    return int(name.rpartition("-")[2], 16) % ANEW_OF == 0


def clean(log: str) -> Resources | None:
    """Return registers and shared memory by the log; None if a kernel spills or the log has a warning."""
    found = build.resources_in(log)
    if found.pop("spill_bytes") or "warning" in log.lower() or re.search(r"C\d{4}|serialized", log):
        return None
    return found


class Compiler:
    """Replaces the compiler in tests: returns the recorded result of a kernel, or compiles it.

    Parameters
    ----------
    run : `build._run_nvrtc`, or a replacement
    known : recorded kernels by name
    """

    def __init__(
        self, run: Callable[[Path, Sequence[Path], list[str]], tuple[bytes, str]], known: dict[str, Resources]
    ) -> None:
        self.run, self.known = run, known
        self.found: dict[str, Resources] = {}
        """Kernels that were compiled and are clean."""
        self.cubins: dict[str, str] = {}
        """SHA-256 of each cubin that was compiled, by source and options."""

    def __call__(self, source: Path, folders: Sequence[Path], options: list[str]) -> tuple[bytes, str]:
        """Return cubin and log. Those of a recorded kernel are empty, and its recorded resources."""
        name = build.cubin_name(source, folders, options)
        known = self.known.get(name)
        if known is not None and not is_sampled(name):
            return b"", f"Used {known['registers']} registers, {known['shared_bytes']} bytes smem"
        cubin, log = self.run(source, folders, options)
        self.cubins[" ".join([source.name, *options])] = hashlib.sha256(cubin).hexdigest()
        resources = clean(log)
        if known is not None:
            assert resources == {key: known[key] for key in ("registers", "shared_bytes")}, (
                f"renew {RECORD.name}"
            )
        if resources is not None:
            self.found[name] = resources
        return cubin, log


def main() -> None:
    """Run the tests that compile, with the record set aside, and write what they found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", default="2")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pytest", "-q", "-n", asked.processes, str(RECORD.parent)]
        subprocess.run(command, check=True, env={**os.environ, ANEW: folder})
        kernels: dict[str, Resources] = {}
        for part in sorted(Path(folder).glob("*.json")):
            for name, resources in json.loads(part.read_text())["kernels"].items():
                kernels.setdefault(name, {}).update(resources)
    # Kernels that are not clean have instructions only: they are compiled in each run
    lines = [
        f"{json.dumps(name)}: {json.dumps(resources, sort_keys=True)}"
        for name, resources in sorted(kernels.items())
        if "registers" in resources
    ]
    text = ",\n".join(lines)
    RECORD.write_text(f'{{"versions": {json.dumps(versions())}, "kernels": {{\n{text}\n}}}}\n')
    print(f"{len(lines)} kernels in {RECORD}")


if __name__ == "__main__":
    main()

"""CUDA kernels of this project on the CPU: the real `.cu` files, with another machine underneath.

`build_on_cpu` runs the preprocessor over a source as it is, turns its inline PTX into calls (`translate.py`)
of functions with the names of the opcodes (`ptx.hpp`), and compiles that with g++ against `cuda_words.hpp`,
which has the words of CUDA C++. `run_on_cpu` launches it: every thread of a block is a fiber that gives the
processor back where it waits (`machine_run.cpp`), so that one core runs any number of blocks at once, and two
runs are the same.

What is emulated, since a kernel can be wrong by it:

* Asynchronous copies happen as late as they may, so that a wait that is missing finds what was there before:
  when their group is waited for, or, where a barrier counts them, when nobody can go on without them, the
  oldest or the newest first. Or they happen at once, so that a slot that is filled too early is overwritten
  before it was read. Tensor instructions of a warpgroup always happen late, when `wait_group` asks for them.
* Shared memory is poisoned: not a number in fp16, bf16 and fp32, and far out of every array as an index.
* Addresses of PTX instructions must be aligned, and lie in the arrays of the launch or the block's memory.
* mbarriers count arrivals and bytes by phase; too many arrivals and use without initialisation are errors.
* The asynchronous proxy: wgmma and TMA stores must not read what threads wrote unless the writer has made a
  fence since, or the reader has once it knew of the write.
* Operands of tensor instructions are read by the fragment layouts and matrix descriptors of the PTX ISA.
* Threads that wait for ever are counted by what they wait for, as an error.
* Turns: a thread runs until it waits, and then the next, from the first to the last or backwards. Or turns
  are drawn at random, threads are held up between memory instructions, and one block is slower than all.
* Races: warps that touch the same word of shared memory, one of them writing, with no barrier or product that
  orders them, and lanes of a warp with no `__syncwarp` between, are errors in whatever order they run
  (`machine_races.cpp`).

What is not: time; registers; races in global memory and by plain C++ loads and stores, beyond what an order
of turns shows, and the bounds of these; a store is seen at once by everybody, so that fences between threads
are not missed, nor those before the copy engine overwrites what threads have read; bank conflicts; launches
that overlap; meetings of half a warp.
"""

import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.kernels.device.build import SOURCES
from prunecast.kernels.device.pass_launch import PassLaunch
from tests.kernels.cuda.on_cpu.translate import translate

__all__ = [
    "UNAVAILABLE",
    "EmulationError",
    "Grid",
    "KernelOnCpu",
    "SourceError",
    "build_on_cpu",
    "machine_library",
    "run_on_cpu",
]

UNAVAILABLE = sys.platform != "linux" or shutil.which("g++") is None
"""Whether kernels cannot be run here."""
HERE = Path(__file__).parent
_MACHINE = (
    "machine_run",
    "machine_memory",
    "machine_together",
    "machine_products",
    "machine_races",
    "machine_numbers",
)
_OPTIONS = ("-std=c++17", "-O1", "-fPIC", "-fno-strict-aliasing", "-U_FORTIFY_SOURCE", "-ffp-contract=off")

_LANDINGS = ("oldest", "newest", "at-once")
_ENTRY = """
template <class... P, int... I>
void call_kernel(void (*kernel)(P...), void** arguments, std::integer_sequence<int, I...>) {
  kernel(*static_cast<std::remove_const_t<std::remove_reference_t<P>>*>(arguments[I])...);
}
template <class... P>
void call_kernel(void (*kernel)(P...), void** arguments) {
  call_kernel(kernel, arguments, std::make_integer_sequence<int, sizeof...(P)>());
}
template <class... P>
constexpr int count_of(void (*)(P...)) {
  return sizeof...(P);
}
extern "C" void entry(void** arguments) { call_kernel(KERNEL, arguments); }
extern "C" int argument_count() { return count_of(KERNEL); }
"""


class EmulationError(RuntimeError):
    """The kernel did what no kernel may do, or waits for ever."""


class SourceError(RuntimeError):
    """The source cannot be compiled for the CPU."""


class Grid(NamedTuple):
    """A launch, and the choices that the real machine would make."""

    blocks: int
    threads: int
    shared_bytes: int
    cluster: int = 1
    resident: int = 0
    """Blocks at a time, all of them for 0."""
    landing: str = "oldest"
    """What lands first of the copies that barriers count, all as late as they may: `oldest`, or `newest` with
    the copy engine's before all others. With `at-once` all copies happen where they are written."""
    backwards: bool = False
    """Threads take turns from the last to the first, each until it waits."""
    seed: int = 0
    """Of turns that are drawn at random, in which block `seed` mod `blocks` is the slowest; 0 for none."""


class KernelOnCpu(NamedTuple):
    """A compiled kernel."""

    entry: Any
    machine: ctypes.CDLL
    arguments: int
    """How many it takes."""


class _Launch(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_uint) for name in ("blocks", "threads", "shared_bytes", "cluster", "resident")),
        *((name, ctypes.c_uint) for name in ("landing", "backwards", "seed", "range_count")),
        ("ranges", ctypes.POINTER(ctypes.c_uint64)),
    )


def build_on_cpu(
    source: Path,
    entry: str,
    defines: Mapping[str, int],
    folder: Path,
    *,
    arch: int = 900,
    includes: Sequence[Path] = (),
    changes: Mapping[str, str] | None = None,
) -> KernelOnCpu:
    """Compile a kernel, or load what was compiled before.

    Parameters
    ----------
    source : a `.cu` file
    entry : name of the `__global__` function
    defines : preprocessor names and their values, as for the GPU
    folder : where compiled kernels are kept
    arch : `__CUDA_ARCH__`
    includes : folders of headers besides the source's own and that of the device
    changes : pieces of the preprocessed text and what to put in their place, each found exactly once; for
        tests of the emulator itself

    Raises
    ------
    SourceError : g++ refuses the source, with what it says, or a change does not fit
    """
    names = [f"-D{name}={value}" for name, value in sorted({**defines, "__CUDA_ARCH__": arch}.items())]
    folders = [f"-I{place}" for place in (source.parent, *includes, SOURCES)]
    text = _run(["g++", "-E", "-P", "-x", "c++", "-nostdinc", *names, *folders, str(source)])
    for old, new in (changes or {}).items():
        if text.count(old) != 1:
            raise SourceError(f"{source.name} has {old!r} {text.count(old)} times, not once")
        text = text.replace(old, new)
    whole = (
        '#include <utility>\n#include "ptx_tensor.hpp"\n' + translate(text) + _ENTRY.replace("KERNEL", entry)
    )
    machine = machine_library(folder)
    key = hashlib.sha256((whole + machine.name).encode()).hexdigest()[:20]
    built = folder / f"{source.stem}-{key}.so"
    if not built.exists():
        written = folder / f"{source.stem}-{key}-{os.getpid()}.cpp"
        written.write_text(whole)
        _compile(["-w", f"-I{HERE}", str(written), str(machine)], built)
    loaded = ctypes.CDLL(str(machine), mode=ctypes.RTLD_GLOBAL)
    kernel = ctypes.CDLL(str(built))
    return KernelOnCpu(kernel.entry, loaded, kernel.argument_count())


_MACHINES: list[Path] = []


def machine_library(folder: Path) -> Path:
    """The machine, compiled into the first folder that a process asks for: kernels find its names by their
    global scope, where two copies of it would be one by name and two by memory.
    """
    if not _MACHINES:
        _MACHINES.append(_compile_machine(folder))
    return _MACHINES[0]


def _compile_machine(folder: Path) -> Path:
    sources = [HERE / f"{name}.cpp" for name in _MACHINE]
    digest = hashlib.sha256()
    for file in sorted(HERE.glob("*.[ch]pp")):
        digest.update(file.read_bytes())
    built = folder / f"libmachine-{digest.hexdigest()[:20]}.so"
    if not built.exists():
        _compile(["-O2", *map(str, sources)], built)
    return built


def _compile(what: list[str], built: Path) -> None:
    """A library that is there whole or not at all: processes share the folder."""
    aside = built.with_name(f"{built.name}.{os.getpid()}")
    _run(["g++", *_OPTIONS, "-shared", *what, "-o", str(aside)])
    aside.replace(built)


def run_on_cpu(
    kernel: KernelOnCpu,
    grid: Grid,
    arguments: Sequence[npt.NDArray[Any]],
    arrays: Sequence[npt.NDArray[Any]],
) -> None:
    """Launch and wait.

    Parameters
    ----------
    arguments : the bytes of every argument of the kernel
    arrays : global memory; PTX instructions may touch nothing else

    Raises
    ------
    EmulationError : where it went wrong and how
    """
    if len(arguments) != kernel.arguments:
        raise EmulationError(f"the kernel takes {kernel.arguments} arguments, got {len(arguments)}")
    ranges = np.array([[a.ctypes.data, a.ctypes.data + a.nbytes] for a in arrays], np.uint64)
    launch = _Launch(
        grid.blocks,
        grid.threads,
        grid.shared_bytes,
        grid.cluster,
        grid.resident or grid.blocks,
        _LANDINGS.index(grid.landing),
        grid.backwards,
        grid.seed,
        len(arrays),
        ranges.ctypes.data_as(ctypes.POINTER(ctypes.c_uint64)),
    )
    addresses = (ctypes.c_void_p * len(arguments))(*(a.ctypes.data for a in arguments))
    launched = kernel.machine.run_launch
    launched.restype = ctypes.c_char_p
    wrong = launched(ctypes.byref(launch), kernel.entry, addresses)
    if wrong is not None:
        raise EmulationError(wrong.decode())


def run_pass_on_cpu(
    launch: PassLaunch, arrays: Sequence[npt.NDArray[Any]], folder: Path, *, resident: int = 0
) -> None:
    """Build a kernel beside the products, launch it and wait.

    Parameters
    ----------
    arrays : global memory
    folder : where built kernels are kept
    resident : blocks that run at once; 0 for all
    """
    kernel = build_on_cpu(SOURCES / launch.source, launch.entry, dict(launch.defines), folder)
    grid = Grid(launch.blocks, launch.threads, launch.shared_bytes, resident=resident)
    run_on_cpu(kernel, grid, [launch.args], arrays)


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SourceError(f"{' '.join(command[:4])}: {done.stderr[:3000]}")
    return done.stdout

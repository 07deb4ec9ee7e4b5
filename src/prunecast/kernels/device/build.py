"""Compile a CUDA source to a cubin with NVRTC, without a GPU or a driver, and cache it.

The log of ptxas is checked. A warning that tensor instructions (wgmma) were serialized counts as an error:
such a kernel is correct but up to 13 % slower, and no test of its results would detect it.
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from prunecast.files import aside, write_text_aside

SOURCES = Path(__file__).parent
NVRTC_VERSION = "13.0"
"""Version of the CUDA toolkit that compiles the cubins. It is part of the cache key. Drivers from 580 on load
these cubins."""

_HARMLESS = "C7519"
"""Warning of ptxas about an inserted wgmma fence, which costs no time."""


_ARCH = "--gpu-architecture="
MOST_SPILL_BYTES = 64
"""Maximum bytes of register spills per thread that are accepted. Releases of NVRTC with the same version
number allocate registers differently: a kernel variant that the compile tests build without spills had 24
bytes on an H200. Kind: choice, a few registers per thread."""


class KernelBuildError(RuntimeError):
    """Error: NVRTC is missing, rejected a source, or produced code that must not be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledKernel:
    """A cubin and the compiler's report about it.

    Parameters
    ----------
    cubin : path of the file to load
    arch : architecture, e.g. `sm_90a`
    registers : registers per thread at entry
    spill_bytes : bytes of register spills (stores and loads) and of the stack frame
    shared_bytes : static shared memory in bytes; the plan contains the dynamic shared memory
    log : output of NVRTC and ptxas
    """

    cubin: Path
    arch: str
    registers: int
    spill_bytes: int
    shared_bytes: int
    log: str


def _cache_folder() -> Path:
    """Return the cache folder of cubins: `PRUNECAST_CACHE`, else a folder in the user's cache."""
    own = os.environ.get("PRUNECAST_CACHE")
    if own:
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "prunecast" / "cubin"


def compile_cubin(
    source: Path,
    arch: str,
    defines: Mapping[str, int],
    *,
    includes: Sequence[Path] = (),
    allow_spills: bool = False,
    folder: Path | None = None,
) -> CompiledKernel:
    """Compile `source`, or return the cached cubin of the same text and options.

    Parameters
    ----------
    arch : e.g. `sm_90a`
    defines : preprocessor macros and their values
    includes : folders of headers in addition to the source's own folder and `kernels/device`
    allow_spills : True to accept any number of register spills to local memory (for debug builds)
    folder : cache folder; None for `_cache_folder()`

    Raises
    ------
    KernelBuildError : NVRTC is not installed, the source does not compile, more than `MOST_SPILL_BYTES` were
        spilled, or tensor instructions were serialised
    """
    options = _options(arch, defines)
    folder = folder or _cache_folder()
    folders = (source.parent, *includes, SOURCES)
    name = cubin_name(source, folders, options)
    kept = folder / f"{name}.json"
    if not kept.exists():
        cubin, log = _run_nvrtc(source, folders, options)
        _keep(folder, name, cubin, log, arch)
    record = json.loads(kept.read_text())
    kernel = CompiledKernel(**{**record, "cubin": folder / f"{name}.cubin"})
    _refuse_bad_code(kernel, source, defines, allow_spills=allow_spills)
    return kernel


@cache
def compile_own(source: str, arch: str, defines: tuple[tuple[str, int], ...]) -> CompiledKernel:
    """Compile a source of `kernels/device`, given by its relative path, once in a process."""
    return compile_cubin(SOURCES / source, arch, dict(defines))


def _options(arch: str, defines: Mapping[str, int]) -> list[str]:
    names = [f"--define-macro={name}={value}" for name, value in sorted(defines.items())]
    return [f"{_ARCH}{arch}", "--std=c++17", "--ptxas-options=-v", *names]


def cubin_name(source: Path, folders: Sequence[Path], options: list[str]) -> str:
    """Return the name of a cubin in the cache: source, architecture, and hash of sources and options.

    Parameters
    ----------
    folders : folders whose headers the source can include
    options : of NVRTC, `--gpu-architecture` first
    """
    digest = hashlib.sha256("\n".join([NVRTC_VERSION, *options]).encode())
    headers = {header for place in folders for header in place.glob("*.cuh")}
    for file in [source, *sorted(headers)]:
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return f"{source.stem}-{options[0].removeprefix(_ARCH)}-{digest.hexdigest()[:20]}"


def resources_in(log: str) -> dict[str, int]:
    """Return the resources of a kernel that the log of ptxas names: `registers` and `spill_bytes` (spills and
    stack) of a thread, and static `shared_bytes` of a block.
    """
    return {
        "registers": max((int(n) for n in re.findall(r"Used (\d+) registers", log)), default=0),
        "spill_bytes": sum(
            int(n) for n in re.findall(r"(\d+) bytes (?:stack frame|spill stores|spill loads)", log)
        ),
        "shared_bytes": max((int(n) for n in re.findall(r"(\d+) bytes smem", log)), default=0),
    }


def _keep(folder: Path, name: str, cubin: bytes, log: str, arch: str) -> None:
    """Write the cubin, then its `CompiledKernel` record, so that no record exists without its cubin."""
    record = CompiledKernel(cubin=Path(f"{name}.cubin"), arch=arch, log=log, **resources_in(log))
    folder.mkdir(parents=True, exist_ok=True)
    with aside(folder / f"{name}.cubin") as unfinished:
        unfinished.write_bytes(cubin)
    write_text_aside(folder / f"{name}.json", json.dumps({**asdict(record), "cubin": f"{name}.cubin"}))


def _refuse_bad_code(
    kernel: CompiledKernel, source: Path, defines: Mapping[str, int], *, allow_spills: bool
) -> None:
    codes = set(re.findall(r"C75\d\d", kernel.log)) - {_HARMLESS}
    if codes or "serialized" in kernel.log:
        raise KernelBuildError(f"{source.name} {dict(defines)}: ptxas serialised it: {sorted(codes)}")
    if kernel.spill_bytes > MOST_SPILL_BYTES and not allow_spills:
        raise KernelBuildError(f"{source.name} {dict(defines)}: spills {kernel.spill_bytes} bytes")


def _run_nvrtc(source: Path, folders: Sequence[Path], options: list[str]) -> tuple[bytes, str]:
    try:
        from cuda.bindings import nvrtc
    except ImportError as missing:
        wanted = f"cuda-bindings and nvidia-cuda-nvrtc {NVRTC_VERSION} (extra `compile`)"
        raise KernelBuildError(
            f"{source.name} is not in the cache, and compiling it needs {wanted}"
        ) from missing
    status, major, minor = nvrtc.nvrtcVersion()
    if int(status) != 0 or f"{major}.{minor}" != NVRTC_VERSION:
        raise KernelBuildError(f"wanted NVRTC {NVRTC_VERSION}, got {major}.{minor}")
    # A cubin from NVRTC's own cache has no ptxas log, and its registers and spills would be unknown
    all_options = [*options, "--no-cache", *(f"--include-path={place}" for place in folders)]
    program = _ask(nvrtc.nvrtcCreateProgram(source.read_bytes(), source.name.encode(), 0, [], []), source)
    encoded = [option.encode() for option in all_options]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)
    log = (
        _read(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program, source).decode().rstrip("\0\n")
    )
    if int(status) != 0:
        raise KernelBuildError(f"{source.name} {options}: {log}")
    return _read(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program, source), log


def _read(size_of: Any, read: Any, program: Any, source: Path) -> bytes:
    text = b"\0" * int(_ask(size_of(program), source))
    _ask(read(program, text), source)
    return text


def _ask(answer: tuple[Any, ...], source: Path) -> Any:
    if int(answer[0]) != 0:
        raise KernelBuildError(f"{source.name}: NVRTC answers {answer[0]}")
    return answer[1] if len(answer) > 1 else None

"""The record of compiled kernels: which are not compiled, which are, and which must be as recorded."""

import json
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from prunecast.kernels.device.build import SOURCES, cubin_name
from tests.kernels.cuda import compiled
from tests.kernels.cuda.compiled import Compiler, clean, is_sampled

SOURCE = SOURCES / "fill_rows.cu"
LOG = """ptxas info : 0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info : Used 40 registers, 16 bytes smem"""


def options_of(sampled: bool) -> list[str]:
    """Options of a kernel that is, or is not, one of those that are compiled nevertheless."""
    for number in range(1000):
        options = ["--gpu-architecture=sm_80", f"--define-macro=N={number}"]
        if is_sampled(cubin_name(SOURCE, (SOURCES,), options)) == sampled:
            return options
    raise AssertionError("no such options")


def run(registers: int):
    log = LOG.replace("40", str(registers))
    return lambda source, folders, options: (b"code", log)


def refused(source: Path, folders: object, options: list[str]) -> tuple[bytes, str]:
    raise AssertionError("compiled")


def test_a_recorded_kernel_is_not_compiled():
    options = options_of(sampled=False)
    known = {cubin_name(SOURCE, (SOURCES,), options): {"registers": 40, "shared_bytes": 16}}
    cubin, log = Compiler(refused, known)(SOURCE, (SOURCES,), options)
    assert (cubin, clean(log)) == (b"", {"registers": 40, "shared_bytes": 16})


def test_a_kernel_of_the_sample_is_compiled_and_compared():
    options = options_of(sampled=True)
    known = {cubin_name(SOURCE, (SOURCES,), options): {"registers": 40, "shared_bytes": 16}}
    assert Compiler(run(40), known)(SOURCE, (SOURCES,), options)[0] == b"code"
    with pytest.raises(AssertionError, match="renew"):
        Compiler(run(41), known)(SOURCE, (SOURCES,), options)


def test_an_unknown_kernel_is_compiled_and_found():
    compiler = Compiler(run(40), {})
    compiler(SOURCE, (SOURCES,), options_of(sampled=False))
    assert list(compiler.found.values()) == [{"registers": 40, "shared_bytes": 16}]


@pytest.mark.parametrize(
    "log",
    [
        LOG.replace("0 bytes spill stores", "8 bytes spill stores"),
        LOG.replace("0 bytes stack", "16 bytes stack"),
        LOG + "\nptxas warning : something",
        LOG + "\n(C7510) wgmma serialized",
    ],
)
def test_only_clean_kernels_are_recorded(log):
    assert clean(log) is None


def test_without_the_compiler_nothing_is_taken_from_the_record(monkeypatch):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(compiled, "version", missing)
    assert set(compiled.versions().values()) == {""}
    assert compiled.recorded.__wrapped__() == {}


def test_on_a_machine_with_a_gpu_all_kernels_are_compiled(monkeypatch, tmp_path):
    record = {"versions": compiled.versions(), "kernels": {"a": {"registers": 40, "shared_bytes": 16}}}
    monkeypatch.setattr(compiled, "RECORD", tmp_path / "compiled.json")
    compiled.RECORD.write_text(json.dumps(record))
    monkeypatch.delenv(compiled.ANEW, raising=False)
    for has_gpu, expected in ((False, record["kernels"]), (True, {})):
        monkeypatch.setattr(compiled, "GPU", tmp_path if has_gpu else tmp_path / "missing")
        assert compiled.recorded.__wrapped__() == expected

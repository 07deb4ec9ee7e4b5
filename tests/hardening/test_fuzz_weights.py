"""Damaged and hostile weight files: BadInput or a matrix, and no more memory than they justify."""

import struct
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import scipy.sparse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from tests import onnx_files

FUZZ = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), database=None)
MUCH = settings(FUZZ, max_examples=500)
"""Of the steps from line to line that 3,000 reach in a reader they leave out seven at most (traced)."""

WEIGHTS = np.random.default_rng(0).standard_normal((6, 5)).astype(np.float32)


def safetensors(path):
    save_file({"a": WEIGHTS, "b": WEIGHTS[0].copy()}, path)


def sparse_npz(path):
    scipy.sparse.save_npz(path, scipy.sparse.csr_matrix(WEIGHTS))


def mtx(path):
    path.write_text("%%MatrixMarket matrix coordinate real general\n% c\n6 5 2\n1 1 0.5\n6 5 -2e3\n")


def smtx(path):
    path.write_text("3, 4, 2\n0 1 1 2\n3 0\n")


GOOD = {
    "a.safetensors": safetensors,
    "a.npy": lambda path: np.save(path, WEIGHTS),
    "a.npz": lambda path: np.savez(path, a=WEIGHTS, b=WEIGHTS[0]),
    "c.npz": lambda path: np.savez_compressed(path, a=WEIGHTS),
    "s.npz": sparse_npz,
    "a.mtx": mtx,
    "a.smtx": smtx,
    "a.onnx": lambda path: path.write_bytes(onnx_files.attention(8).SerializeToString()),
}


@st.composite
def damage(draw):
    """A change of a file: bytes replaced, put in or cut out."""
    places = draw(st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=4))
    return [
        (where, draw(st.sampled_from("rid")), draw(st.binary(min_size=1, max_size=6))) for where in places
    ]


def damaged(content, changes):
    for where, how, piece in changes:
        at = int(where * max(len(content), 1))
        stop = at if how == "i" else at + len(piece)
        content = content[:at] + (b"" if how == "d" else piece) + content[stop:]
    return content


@pytest.mark.parametrize("name", GOOD)
@MUCH
@given(changes=damage())
@pytest.mark.filterwarnings("ignore")  # of numpy and zipfile about damaged headers
def test_damage(tmp_path, name, changes, matrices, usable_or_refused):
    path = tmp_path / name
    GOOD[name](path)
    path.write_bytes(damaged(path.read_bytes(), changes))
    found = usable_or_refused(matrices, path)
    if isinstance(found, dict):
        assert all(weights.ndim == 2 and np.isfinite(weights).all() for weights in found.values())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**40), 10**40) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
ENTRY = st.fixed_dictionaries(
    {},
    optional={
        "dtype": st.sampled_from(["F16", "F32", "BF16", "I8", "F64", "X", ""]) | JSON,
        "shape": st.lists(st.integers(-1, 2**62), max_size=5) | JSON,
        "data_offsets": st.lists(st.integers(-1, 300), min_size=2, max_size=2) | JSON,
    },
)


@FUZZ
@given(header=st.dictionaries(st.text(max_size=6) | st.just("__metadata__"), ENTRY | JSON, max_size=4) | JSON)
def test_any_safetensors_header(header, safetensors_file, matrices, usable_or_refused):
    usable_or_refused(matrices, safetensors_file(header, bytes(256)))


DESCR = st.recursive(
    st.sampled_from(["<f4", "<f2", "|O", "|V0", "<f8", "|S0", "nonsense", "", 0, None, ("<f4",)]),
    lambda inner: st.tuples(inner, inner) | st.lists(inner, max_size=3) | st.tuples(st.just("x"), inner),
    max_leaves=5,
)


@FUZZ
@given(descr=DESCR, shape=st.lists(st.integers(-1, 2**62), max_size=4) | st.text(max_size=4))
@pytest.mark.filterwarnings("ignore")
def test_any_npy_header(descr, shape, npy_header, matrices, usable_or_refused):
    shape = tuple(shape) if isinstance(shape, list) else shape
    header = repr({"descr": descr, "fortran_order": False, "shape": shape})
    usable_or_refused(matrices, npy_header(header, bytes(64)))


@FUZZ
@given(
    banner=st.lists(st.sampled_from(["coordinate", "array", "real", "pattern", "symmetric", "general", "x"])),
    sizes=st.lists(st.integers(0, 10**19) | st.integers(0, 6), max_size=4),
    words=st.lists(
        st.sampled_from(["1", "2", "nan", "1e999", "0x1", "-1", "1_0", "\x00", "1.5"]), max_size=12
    ),
)
def test_any_matrix_market_text(tmp_path, banner, sizes, words, matrices, usable_or_refused):
    path = tmp_path / "a.mtx"
    lines = ["%%MatrixMarket matrix " + " ".join(banner), " ".join(map(str, sizes)), "\n".join(words)]
    path.write_text("\n".join(lines))
    usable_or_refused(matrices, path)


def test_a_tuple_as_type_is_no_traceback(npy_header, matrices, usable_or_refused):
    header = "{'descr': ('<f4',), 'fortran_order': False, 'shape': (2, 2)}"
    assert "cannot be read" in usable_or_refused(matrices, npy_header(header, bytes(16)))


def test_sizes_of_thousands_of_digits_are_one_line(safetensors_file, matrices, usable_or_refused):
    shape = [int("9" * 4000)] * 2
    entry = {"dtype": "I8", "shape": shape, "data_offsets": [0, 4]}
    assert "is no JSON" in usable_or_refused(matrices, safetensors_file({"a": entry}, bytes(4)))
    entry = {"dtype": "I8", "shape": [2**62] * 60, "data_offsets": [0, 4]}
    assert usable_or_refused(matrices, safetensors_file({"a": entry}, bytes(4)))
    entry = {"dtype": "F16", "shape": [1] * 1500, "data_offsets": [0, 4]}
    assert "64 dimensions" in usable_or_refused(matrices, safetensors_file({"a": entry}, bytes(4)))


def test_a_damaged_lzma_member_is_one_line(tmp_path, matrices, usable_or_refused):
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a.npy", bytes(1000))
    content = bytearray((tmp_path / "a.npz").read_bytes())
    content[40:60] = bytes(range(200, 220))
    (tmp_path / "a.npz").write_bytes(content)
    assert "cannot be read" in usable_or_refused(matrices, tmp_path / "a.npz")


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]),) * 2)
from prunecast.cli import main
code = main(["prune", sys.argv[1], "-o", "out"])
print(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])
sys.exit(code)
"""


def zip_bomb(path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("a.npy", "w") as member:
        np.lib.format.write_array_header_1_0(
            member, {"descr": "<f4", "fortran_order": False, "shape": (8192, 8192)}
        )
        for _ in range(256):
            member.write(bytes(2**20))


def huge_header(path):
    path.write_bytes(struct.pack("<Q", 2**60) + b"{}")


def sparse_giant(path):
    path.write_text("%%MatrixMarket matrix coordinate real general\n46000 46000 1\n1 1 1\n")


def long_word(path):
    path.write_text("%%MatrixMarket matrix array real general\n200 200\n" + "0" * 2**16 + " 1" * 39999)


def smtx_giant(path):
    path.write_text("2000, 1000000, 1\n" + " ".join(["0"] * 2000 + ["1"]) + "\n0\n")


BOMBS = {
    "a.npz": (zip_bomb, 2),
    "a.safetensors": (huge_header, 2),
    "a.mtx": (sparse_giant, 2),
    "b.mtx": (long_word, 0),
    "a.smtx": (smtx_giant, 2),
}


@pytest.mark.parametrize("name", BOMBS)
def test_no_more_memory_than_the_file_justifies(tmp_path, name):
    make, code = BOMBS[name]
    make(tmp_path / name)
    assert (tmp_path / name).stat().st_size < 2**20
    arguments = [sys.executable, "-c", LIMITED, name, str(3 * 2**30)]
    ended = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, timeout=1800)
    assert (ended.returncode, ended.stderr.count("\n")) == (code, code // 2), ended.stderr
    assert int(ended.stdout.split()[-1]) < 2**20  # kB: 1 GiB. (ru_maxrss would carry over from this process.)

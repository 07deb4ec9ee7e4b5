import json
import struct

import numpy as np
import pytest

from prunecast.errors import BadInput
from prunecast.patterns.sources import read_weights
from prunecast.validation.records import read_runs
from prunecast.validation.validate import bundled_records
from tests.naive.record_files import write_run


@pytest.fixture
def usable_or_refused():
    """Runs a reader: what it gives, or its one line; any other exception fails the test."""

    def usable_or_refused(reader, *arguments):
        try:
            return reader(*arguments)
        except BadInput as error:
            line = str(error)
        assert line.strip()
        assert len(line) < 3000
        return line

    return usable_or_refused


@pytest.fixture
def safetensors_file(tmp_path):
    """Writes a header, as JSON or as it is, and data behind it."""

    def write(header, data=b"", name="a.safetensors"):
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        (tmp_path / name).write_bytes(struct.pack("<Q", len(text)) + text + data)
        return tmp_path / name

    return write


@pytest.fixture
def npy_header(tmp_path):
    """Writes a `.npy` file with a header that is any text."""

    def write(text, data=b"", name="a.npy"):
        padded = text.encode() + b"\n"
        (tmp_path / name).write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(padded)) + padded + data)
        return tmp_path / name

    return write


@pytest.fixture
def matrices():
    """Weights of a file, all of them; the arrays are touched."""

    def matrices(path):
        return {name: np.array(layer.weights) for name, layer in read_weights(path).layers.items()}

    return matrices


@pytest.fixture
def record(tmp_path):
    """A short record of real measurements."""
    run = read_runs(bundled_records()[0])[0]
    write_run(tmp_path / "short.csv", run.header, run.rows[:3])
    return "short.csv"

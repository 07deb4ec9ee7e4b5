import os

import pytest

from prunecast.cli.options import Printed
from prunecast.cli.output import Report, deliver
from prunecast.errors import BadInput


def destination(as_json, as_csv, output):
    return Printed(as_json=as_json, as_csv=as_csv, output=output)


def report(number=1.0):
    return Report({"number": number}, [{"a": 1, "b": 'x,"y'}], lambda page: page.say("shown"))


def test_forms(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for arguments, printed in (
        ((False, False, None), "shown\n"),
        ((True, False, None), '{\n  "number": 1.0\n}\n'),
        ((False, True, None), 'a,b\n1,"x,""y"\n'),
    ):
        deliver(destination(*arguments), report())
        assert capsys.readouterr().out == printed
    deliver(destination(False, True, "out.json"), report())
    assert (tmp_path / "out.json").read_text() == '{\n  "number": 1.0\n}\n'


def test_no_rows_are_no_lines(capsys):
    deliver(destination(False, True, None), report()._replace(rows=[]))
    assert capsys.readouterr().out == ""


def test_a_failure_leaves_the_old_file_and_prints_nothing(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out.json").write_text("old")
    with pytest.raises(ValueError, match="not JSON compliant"):
        deliver(destination(True, False, "out.json"), report(float("nan")))

    def fail(*_):
        raise OSError(13, "Permission denied")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(BadInput, match=r"cannot write out.json: Permission denied"):
        deliver(destination(False, False, "out.json"), report())
    assert (tmp_path / "out.json").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]
    assert capsys.readouterr().out == ""

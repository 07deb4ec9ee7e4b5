"""Databases that cannot be used are refused before anything is written to them."""

import io
import json
import sqlite3
import subprocess
import sys

import pytest

pytest.importorskip("optuna")

import optuna

from prunecast.codesign.study import storage as library
from prunecast.codesign.study.storage import StudyStorage
from prunecast.errors import BadInput


def refused(place):
    with pytest.raises(BadInput) as caught:
        StudyStorage(str(place)).open()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def sqlite_file(path, *statements):
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()
    return path


def test_a_look_writes_nothing(tmp_path):
    assert not StudyStorage(str(tmp_path / "new.sqlite")).exists
    assert list(tmp_path.iterdir()) == []


def test_a_database_of_another_kind(tmp_path):
    path = sqlite_file(tmp_path / "s.sqlite", "CREATE TABLE results (key TEXT)")
    before = path.read_bytes()
    assert "must be a database of Optuna or an empty one, got one with the table 'results'" in refused(path)
    assert path.read_bytes() == before


def test_a_database_of_another_optuna(tmp_path):
    path = tmp_path / "s.sqlite"
    StudyStorage(str(path)).open().remove_session()
    sqlite_file(path, "UPDATE alembic_version SET version_num = 'v9.9'")
    before = path.read_bytes()
    assert "is of another Optuna" in refused(path)
    assert path.read_bytes() == before


def test_what_is_no_database(tmp_path):
    path = tmp_path / "s.sqlite"
    path.write_bytes(b"no database at all" * 100)
    assert "file is not a database" in refused(path)
    assert "storage must be a file, got a folder" in refused(tmp_path)
    assert "folder that exists" in refused(tmp_path / "no" / "s.sqlite")
    assert "neither" in refused("://")


def test_a_server_without_its_driver_and_an_unknown_one():
    line = refused("postgresql+pg8000://nobody:secret@localhost:1/none")
    assert "needs the driver of its database" in line
    assert "secret" not in line
    assert "nosuch" in refused("nosuch://localhost/none")


def test_optuna_is_named_where_it_is_missing(monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(library.importlib, "import_module", missing)
    assert "pip install 'prunecast[search]'" in refused("s.sqlite")


def test_a_full_disk_leaves_nothing(tmp_path):
    """Files of this process may not grow beyond what some of the tables take."""
    script = (
        "import resource, signal, sys\n"
        "from prunecast.codesign.study.storage import StudyStorage\n"
        "from prunecast.errors import BadInput\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))\n"
        "try:\n"
        "    StudyStorage(sys.argv[1]).open()\n"
        "except BadInput as error:\n"
        "    print(error)\n"
    )
    place = str(tmp_path / "s.sqlite")
    told = subprocess.run([sys.executable, "-c", script, place], capture_output=True, text=True, timeout=1800)
    assert told.stdout.startswith(place), told.stderr
    assert list(tmp_path.iterdir()) == []
    StudyStorage(place).open()


def test_an_empty_file_becomes_a_database(tmp_path):
    (tmp_path / "s.sqlite").touch()
    StudyStorage(str(tmp_path / "s.sqlite")).open()
    assert [path.name for path in tmp_path.iterdir()] == ["s.sqlite"]
    assert StudyStorage(str(tmp_path / "s.sqlite")).exists


def test_a_database_that_goes_away_is_one_line(tmp_path, monkeypatch):
    monkeypatch.delenv("PRUNECAST_TEST_DATABASE", raising=False)
    from tests.codesign.study.toy_study import GROUPS, open_study, run_trials, toy_result

    study = open_study(tmp_path, 0)

    def evaluate(patterns):
        (tmp_path / "study.sqlite").write_bytes(b"something else" * 1000)
        return toy_result({"worth": "something"})

    kept_in = StudyStorage(str(tmp_path / "study.sqlite"))
    with pytest.raises(BadInput, match=r"study\.sqlite: ") as caught, kept_in.errors():
        run_trials(study, GROUPS, evaluate, 3, lambda done: None)
    assert "\n" not in str(caught.value)


def test_a_file_with_a_strange_name(tmp_path):
    path = tmp_path / "a {b} c%20.sqlite"
    optuna.create_study(storage=StudyStorage(str(path)).open(), study_name="x")
    assert path.exists()
    assert StudyStorage(str(path)).exists


def test_the_dashboard_reads_it(tmp_path, monkeypatch):
    monkeypatch.delenv("PRUNECAST_TEST_DATABASE", raising=False)
    dashboard = pytest.importorskip("optuna_dashboard")
    from tests.codesign.study.toy_study import open_study, run_toy

    run_toy(tmp_path, 3, seed=0)
    app = dashboard.wsgi(f"sqlite:///{tmp_path}/study.sqlite")
    study = open_study(tmp_path, 0)
    answered = []
    environment = {
        "REQUEST_METHOD": "GET",
        "PATH_INFO": f"/api/studies/{study._study_id}",
        "QUERY_STRING": "after=0",
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "80",
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(),
        "wsgi.errors": None,
    }
    body = b"".join(app(environment, lambda status, headers, _=None: answered.append(status)))
    assert answered == ["200 OK"]
    assert len(json.loads(body)["trials"]) == 3


def test_no_connection_is_left_open(tmp_path, monkeypatch):
    """Since Python 3.13 one that the garbage collector closes warns, in whatever runs then."""
    monkeypatch.delenv("PRUNECAST_TEST_DATABASE", raising=False)
    from sqlalchemy import event
    from sqlalchemy.pool import Pool

    from tests.codesign.study.toy_study import run_toy

    opened, closed = [], []

    def note_opened(connection, _record):
        opened.append(connection)

    def note_closed(connection, _record):
        closed.append(connection)

    event.listen(Pool, "connect", note_opened)
    event.listen(Pool, "close", note_closed)
    try:
        run_toy(tmp_path, 4, seed=0)
    finally:
        event.remove(Pool, "connect", note_opened)
        event.remove(Pool, "close", note_closed)
    assert opened
    assert [one for one in opened if one not in closed] == []


@pytest.mark.parametrize("has_cause", [True, False])
def test_an_error_of_the_database_is_named_by_its_cause(tmp_path, has_cause):
    """Optuna wraps errors of the database; its own message says less than theirs."""
    storage = StudyStorage(str(tmp_path / "new.sqlite"))
    with (
        pytest.raises(BadInput, match=r"disk is full$" if has_cause else r"no connection$"),
        storage.errors(),
    ):
        raise optuna.exceptions.StorageInternalError("no connection") from (
            OSError("disk is full") if has_cause else None
        )


def test_errors_that_are_not_of_the_database_stay_what_they_are(tmp_path):
    storage = StudyStorage(str(tmp_path / "new.sqlite"))
    with pytest.raises(ZeroDivisionError), storage.errors():
        raise ZeroDivisionError from ValueError("a sum of no terms")

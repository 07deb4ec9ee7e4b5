"""Database of studies, an SQLite file or a database server. It is checked before anything is written.

Optuna is imported only when a study is opened, since it is optional and slow to import.
"""

import importlib
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from prunecast.codesign.search import ChosenLayer, FrontPoint, TargetResult
from prunecast.errors import BadInput
from prunecast.files import JOURNALS, Output, OutputFile, aside, check_writable, put_unless_filled
from prunecast.workload.memory import PassMemory


def optuna_library() -> Any:
    """Return the Optuna module, with its log messages about failed trials disabled.

    Raises
    ------
    BadInput : Optuna or SQLAlchemy is not installed
    """
    try:
        optuna = importlib.import_module("optuna")
        importlib.import_module("sqlalchemy")
    except ImportError:
        raise BadInput("a search needs the package optuna: pip install 'prunecast[search]'") from None
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    return optuna


def standing(study: Any, number: int) -> int:
    """Return the number of trials before trial `number` that have not failed.

    Failed trials do not count, since they were abandoned or are repeated under a new number.
    """
    failed = optuna_library().trial.TrialState.FAIL
    return sum(t.number < number and t.state != failed for t in study.get_trials(deepcopy=False))


def seeded_sampler(seed: int) -> Any:
    """Return Optuna's TPE sampler, which is seeded anew for every trial.

    The seed of a trial depends on `seed` and on the number of trials before it (`standing`). With one seed
    for all trials, a resumed study would restart its random numbers and draw the first trials again.
    """
    optuna = optuna_library()

    class SeededSampler(optuna.samplers.BaseSampler):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            self._tpe = optuna.samplers.TPESampler(seed=seed)

        def before_trial(self, study: Any, trial: Any) -> None:
            place = standing(study, trial.number)
            self._tpe = optuna.samplers.TPESampler(seed=(seed * 1_000_003 + place) % 2**32)

        def infer_relative_search_space(self, study: Any, trial: Any) -> Any:
            return {}

        def sample_relative(self, study: Any, trial: Any, search_space: Any) -> dict[str, Any]:
            return {}

        def sample_independent(self, study: Any, trial: Any, name: str, distribution: Any) -> Any:
            return self._tpe.sample_independent(study, trial, name, distribution)

    return SeededSampler()


def database_class() -> Any:
    """Return a subclass of Optuna's `RDBStorage`, the database class of studies.

    The subclass can return the time of a trial's last heartbeat. It stores an error in the heartbeat thread,
    so that the main thread can raise it.
    """
    optuna = optuna_library()

    class Database(optuna.storages.RDBStorage):  # type: ignore[misc, name-defined]
        heartbeat_error: Exception | None = None

        def record_heartbeat(self, trial_id: int) -> None:
            # Optuna calls this in a separate thread, where an error would only be printed.
            try:
                super().record_heartbeat(trial_id)
                self.heartbeat_error = None
            except Exception as error:
                self.heartbeat_error = error

        def raise_heartbeat_error(self) -> None:
            """Raise the stored error if the last heartbeat failed."""
            if self.heartbeat_error is not None:
                raise self.heartbeat_error

        def heartbeat(self, study: Any, number: int) -> Any:
            """Return the stored time of a trial's last heartbeat; None before the first heartbeat."""
            from sqlalchemy import text

            query = text(
                "SELECT heartbeat FROM trial_heartbeats JOIN trials USING (trial_id) "
                "WHERE trials.study_id = :study AND trials.number = :number"
            )
            with self.engine.connect() as connection:
                asked = {"study": study._study_id, "number": number}
                return connection.execute(query, asked).scalar()

    return Database


def database_of(study: Any) -> Any:
    """Return the database object of a study, see `database_class`; Optuna wraps it in a cache."""
    return study._storage._backend


HEARTBEAT_S = 10
GRACE_S = 60
"""Seconds without a heartbeat after which a process on another machine is considered dead."""
LOCKED_S = 60
"""Timeout of a lock in seconds: only one process can write to SQLite at a time, and the others wait."""
CREATION_TRIES = 20
CREATION_WAIT_S = 0.25
DATABASE = ("optuna.", "sqlalchemy.")
"""Name prefixes of the modules that read the database."""
OPTUNA_TABLES = {"alembic_version", "studies", "trials", "version_info"}
"""Some tables that every database of Optuna has."""


def database_outputs(place: str, what: str) -> list[Output]:
    """Return the SQLite file of a database for the check of outputs; empty for a database on a server.

    Parameters
    ----------
    place : path of an SQLite file, or URL of a database
    what : first word of error messages

    Raises
    ------
    BadInput : Optuna is not installed, or the URL cannot be parsed
    """
    from sqlalchemy import make_url

    optuna_library()
    url = make_url(_url(place)[0])
    if url.get_backend_name() != "sqlite" or not url.database:
        return []
    path = Path(url.database if "://" in place else place)
    return [OutputFile(what=what, path=path, companions=JOURNALS)]


class StudyStorage:
    """The database of studies.

    Parameters
    ----------
    place : path of an SQLite file, or a URL such as `postgresql+psycopg://user@host/studies`

    Raises
    ------
    BadInput : Optuna or the driver of the database is not installed, the database cannot be reached, or it
        contains tables of another application
    """

    def __init__(self, place: str) -> None:
        optuna_library()
        self._url, self.shown = _url(place)
        with self.errors():
            self.exists = self._look()
        """True if the database already contains Optuna's tables."""

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Convert exceptions of the database or Optuna into a one-line BadInput (context manager)."""
        try:
            yield
        except BadInput:
            raise
        except Exception as error:
            cause = _of_the_database(error)
            if cause is not None:
                raise BadInput(f"{self.shown}: {_first_line(cause)}") from None
            if not _is_of_optuna(error):
                raise
            kind = type(error).__name__
            raise BadInput(
                f"{self.shown} is damaged, Optuna cannot read it: {kind}: {_first_line(error)}"
            ) from None

    def open(self) -> Any:
        """Open the database, and create its tables if it is empty; return it, see `database_class`.

        Raises
        ------
        BadInput : in the same cases as the constructor
        """
        for left in reversed(range(CREATION_TRIES)):
            ready = self._look()
            try:
                with self.errors():
                    if not ready and self._url.startswith("sqlite"):
                        self._make_file()
                        ready = True
                    return self._open(self._url, ready)
            except BadInput:
                # another process may have made the tables at the same moment
                if ready or not left:
                    raise
                time.sleep(CREATION_WAIT_S)
        raise AssertionError("the last try returns or raises")

    def _make_file(self) -> None:
        """Create an SQLite file with empty tables atomically: it appears with all tables or not at all."""
        from sqlalchemy import URL, make_url

        path = Path(make_url(self._url).database or "")
        with suppress(FileExistsError), aside(path, put=put_unless_filled) as unfinished:
            made = self._open(URL.create("sqlite", database=str(unfinished)).render_as_string(), False)
            made.remove_session()
            made.engine.dispose()

    def _open(self, url: str, ready: bool) -> Any:
        optuna = optuna_library()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            try:
                return database_class()(
                    url.replace("{", "{{").replace("}", "}}"),
                    engine_kwargs={"connect_args": self._connect_args(), **self._pool()},
                    heartbeat_interval=HEARTBEAT_S,
                    grace_period=GRACE_S,
                    skip_table_creation=ready,
                )
            except RuntimeError as error:
                raise BadInput(f"{self.shown} is of another Optuna: {_first_line(error)}") from None

    def _look(self) -> bool:
        """Return True if Optuna's tables exist, False if the database is empty.

        Raises
        ------
        BadInput : the database contains other tables, or cannot be read
        """
        for left in reversed(range(CREATION_TRIES)):
            tables = self._tables()
            if not tables or tables >= OPTUNA_TABLES:
                break
            if not left or not tables & OPTUNA_TABLES:
                raise BadInput(
                    f"{self.shown} must be a database of Optuna or an empty one, got one with the table "
                    f"{min(tables)!r}"
                )
            time.sleep(CREATION_WAIT_S)  # another process may be creating them
        return bool(tables)

    def _tables(self) -> set[str]:
        """Return the names of the tables. Optuna's version table is left out as long as it has no row."""
        from sqlalchemy import create_engine, inspect, make_url, text

        url = make_url(self._url)
        if url.get_backend_name() == "sqlite" and not _sqlite_exists(url.database or "", self.shown):
            return set()
        try:
            engine = create_engine(self._url, connect_args=self._connect_args())
        except ImportError as error:
            raise BadInput(f"{self.shown} needs the driver of its database: {_first_line(error)}") from None
        try:
            tables = set(inspect(engine).get_table_names())
            if tables >= OPTUNA_TABLES:
                with engine.connect() as connection:
                    if connection.execute(text("SELECT version_num FROM alembic_version")).first() is None:
                        tables.remove("alembic_version")
            return tables
        finally:
            engine.dispose()

    def _pool(self) -> dict[str, Any]:
        # A pool would keep SQLite's connections open until it is garbage-collected.
        from sqlalchemy import NullPool

        return {"poolclass": NullPool} if self._url.startswith("sqlite") else {}

    def _connect_args(self) -> dict[str, Any]:
        return {"timeout": LOCKED_S} if self._url.startswith("sqlite") else {}


def _url(place: str) -> tuple[str, str]:
    """Return the URL of a database, and the text to show for it in messages (without the password)."""
    from sqlalchemy import URL, make_url
    from sqlalchemy.exc import ArgumentError

    if "://" not in place:
        return URL.create("sqlite", database=str(Path(place).absolute())).render_as_string(), place
    try:
        url = make_url(place)
        return url.render_as_string(hide_password=False), url.render_as_string(hide_password=True)
    except (ArgumentError, ValueError):
        raise BadInput(
            "storage must be a file or a URL like postgresql+psycopg://user@host/name, got neither"
        ) from None


def _sqlite_exists(path: str, shown: str) -> bool:
    """Return True if the file exists and is not empty. Opening it with SQLite would create it."""
    if not path:
        raise BadInput(f"storage must be a file in a folder that exists, got {shown}")
    file = check_writable(path, "storage")
    return file.exists() and file.stat().st_size > 0


def _first_line(error: BaseException) -> str:
    """Return the first line of a database error, without the statement and the link that SQLAlchemy adds."""
    origin = getattr(error, "orig", None) or error
    return next(iter(str(origin).splitlines()), type(origin).__name__)


def _is_of_optuna(error: BaseException) -> bool:
    """Return True if an error arose in Optuna or its database, not in project code that they called."""
    names = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    known = [name.partition(".")[0] for name in names if name.startswith(("prunecast.", *DATABASE))]
    return bool(known) and known[-1] != "prunecast"


def _of_the_database(error: BaseException | None) -> BaseException | None:
    """Return the database exception in the chain of an error, or None."""
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import SQLAlchemyError

    while error is not None:
        if isinstance(error, SQLAlchemyError):
            return error
        if isinstance(error, StorageInternalError):
            return error.__cause__ or error
        error = error.__cause__ or error.__context__
    return None


def read_result(stored: Any, where: str) -> TargetResult:
    """Return a result from its stored JSON object; the times of single operators are not stored.

    Parameters
    ----------
    stored : JSON object that `TargetResult.document` returned
    where : name of the trial for the error message

    Raises
    ------
    BadInput : the object is not such a result
    """
    try:
        return TargetResult(
            layers=tuple(ChosenLayer(**row) for row in stored["layers"]),
            time=None,
            seconds=float(stored["seconds"]),
            dense_seconds=float(stored["dense_seconds"]),
            retained_importance=float(stored["retained_importance"]),
            sparsity=float(stored["sparsity"]),
            front=tuple(FrontPoint(**point) for point in stored["front"]),
            gpu_bytes=float(stored.get("gpu_memory_bytes", 0.0)),
            dense_memory=_memory(stored, "dense"),
            memory=_memory(stored, "pruned"),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{where} must hold a result of `prunecast search`, but: {error}") from None


def _memory(stored: Any, side: str) -> tuple[PassMemory, ...]:
    """Return the GPU memory that each forward pass of the model needs, as a result file states it.

    `side` is `dense` or `pruned`. Files of versions before 0.2.0 state no memory: the tuple is empty.
    """
    rows = stored.get("memory", ())
    return tuple(PassMemory(batch=int(row["batch"]), **row[side]["memory_bytes"]) for row in rows)

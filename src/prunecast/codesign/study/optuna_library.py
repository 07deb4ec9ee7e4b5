"""Optuna, imported when a study is opened: it is optional, and slow to import."""

import importlib
from typing import Any

from prunecast.errors import BadInput


def optuna_library() -> Any:
    """The package, quiet: a trial that is left out is no news.

    Raises
    ------
    BadInput : it is not installed
    """
    try:
        optuna = importlib.import_module("optuna")
        importlib.import_module("sqlalchemy")
    except ImportError:
        raise BadInput("a search needs the package optuna: pip install 'prunecast[search]'") from None
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    return optuna

"""A `TargetResult` as an attribute of a trial, and back."""

from typing import Any

from prunecast.codesign.search import ChosenLayer, FrontPoint, TargetResult
from prunecast.errors import BadInput


def stored_result(result: TargetResult) -> dict[str, Any]:
    """As JSON holds it; numbers come back as they were."""
    return {
        "seconds": result.seconds,
        "dense_seconds": result.dense_seconds,
        "retained_importance": result.retained_importance,
        "sparsity": result.sparsity,
        "layers": [layer.row() for layer in result.layers],
        "front": [point._asdict() for point in result.front],
    }


def read_result(stored: Any, where: str) -> TargetResult:
    """The result again, without the times of single operators.

    Raises
    ------
    BadInput : it is none of ours; `where` says which trial it belongs to
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
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{where} must hold a result of `prunecast search`, but: {error}") from None

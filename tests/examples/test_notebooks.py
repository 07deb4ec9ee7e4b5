"""The notebooks run from the first cell to the last, without a network, and every figure is drawn."""

import ast
import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest
from matplotlib.figure import Figure

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples" / "notebooks").glob("*.ipynb"))


def cells(notebook: Path) -> list[dict[str, Any]]:
    document = json.loads(notebook.read_text(encoding="utf-8"))
    assert (document["nbformat"], document["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in document["cells"]}) == len(document["cells"])
    return document["cells"]


def test_there_are_two() -> None:
    assert [notebook.stem for notebook in NOTEBOOKS] == ["1_predict_and_compare", "2_prune_to_a_latency"]


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_a_notebook_runs(notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mpl.use("Agg")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    shown = []
    for cell in cells(notebook):
        if cell["cell_type"] == "code":
            assert not cell["outputs"]
            tree = ast.parse("".join(cell["source"]))
            # A notebook shows the value of a last line that is an expression
            last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, notebook.name, "exec"), names)
            if isinstance(last, ast.Expr):
                shown.append(eval(compile(ast.Expression(last.value), notebook.name, "eval"), names))
            if ".plot" in "".join(cell["source"]):
                assert isinstance(shown[-1], Figure), "a figure is shown if it is the value of the last line"
    figures = [each for each in shown if isinstance(each, Figure)]
    assert figures
    assert all(figure.axes for figure in figures)
    tables = [each for each in shown if each is not None and not isinstance(each, Figure)]
    assert tables
    assert all(each._repr_html_() for each in tables)

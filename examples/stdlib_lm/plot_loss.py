"""Draws loss.svg from loss.csv; the same csv and Matplotlib always give the same bytes."""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

STYLE = {"svg.hashsalt": "stdlib_lm", "svg.fonttype": "none", "font.size": 10}
CURVES = {"train_loss": "training files", "validation_loss": "validation files"}


def read_columns(path: Path) -> dict[str, list[float]]:
    """The csv's columns by name."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {name: [float(row[name]) for row in rows] for name in rows[0]}


def draw(columns: dict[str, list[float]]) -> Figure:
    """Both losses against the step."""
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.add_subplot(xlabel="training step", ylabel="loss (nats/byte)", title="stdlib_lm: loss")
    for name, label in CURVES.items():
        axes.plot(columns["step"], columns[name], label=label, linewidth=1.5)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    return figure


def main() -> None:
    """Draws in the folder named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent, help="holds loss.csv")
    folder = parser.parse_args().folder
    with matplotlib.rc_context(STYLE):
        figure = draw(read_columns(folder / "loss.csv"))
        FigureCanvasSVG(figure).print_svg(folder / "loss.svg", metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    main()

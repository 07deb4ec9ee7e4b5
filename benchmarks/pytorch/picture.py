"""Where does the time of a model go in PyTorch, dense and sparse? Draws the page's picture from the record.

    python -m benchmarks.pytorch.picture [RECORD.json] [--out docs/howto/where_the_time_goes.svg]

A bar is a pass, its parts are kinds of kernels: where launches overlap, their share of the time in which any
runs.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.pytorch.fit import RECORD
from prunecast.codesign.pictures.palette import SCREEN

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "where_the_time_goes.svg"
SHOWN = {
    "llama-2-7b 4 blocks prefill:2048 75%": "Llama-7B, 4 blocks, prompt of 2048 tokens",
    "llama-2-7b 4 blocks decode:1@1024 75%": "Llama-7B, 4 blocks, next token after 1024",
    "llama-2-7b 4 blocks decode:16@1024 75%": "Llama-7B, 4 blocks, next token of 16 sequences",
    "bert-base 32x128 75%": "BERT-base, 32 texts of 128 tokens",
    "vit-large-16 32x197 75%": "ViT-L, 32 images",
}
PARTS = {
    "products": ("gemm",),
    "attention": ("attention",),
    "norms, sums": ("normalise",),
    "activation": ("activation", "gated unit"),
    "transpose of X": ("transpose",),
    "rotary, cache, input": ("rotary", "cache", "patches", "input"),
}
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#e69f00", "#cc79a7", "#56b4e9")
BETWEEN = "between kernels"
LEAST_LABELLED = 0.07


def parts_of(model: dict[str, Any], kind: str) -> dict[str, float]:
    """Microseconds of a pass by part, of the compiled variant."""
    variant = f"{kind} compiled"
    kinds = {name: us for name, (_, us) in model["kinds"][variant].items()}
    busy = model["busy_us"][variant]
    together = min(busy / sum(kinds.values()), 1.0)
    found = {part: together * sum(kinds.get(name, 0.0) for name in own) for part, own in PARTS.items()}
    return {**found, BETWEEN: max(model["us"][variant] - sum(found.values()), 0.0)}


def draw(axes: Axes, model: dict[str, Any], title: str) -> None:
    """Two bars, dense above sparse, in microseconds."""
    total = model["us"]["dense compiled"]
    for place, kind in enumerate(("dense", "sparse")):
        left = 0.0
        for colour, (part, us) in zip((*COLOURS, SCREEN.faint), parts_of(model, kind).items(), strict=True):
            axes.barh(place, us, left=left, color=colour, label=part if place == 0 else None)
            if us > LEAST_LABELLED * total:
                axes.text(left + us / 2, place, f"{us:.0f}", ha="center", va="center", color="white", size=8)
            left += us
        axes.text(
            left + 0.01 * total, place, f"{model['us'][f'{kind} compiled']:.0f} us", va="center", size=8
        )
    axes.set(yticks=(0, 1), yticklabels=("dense", "75 %"), xticks=(), xlim=(0.0, 1.12 * total))
    axes.invert_yaxis()
    axes.set_title(title, loc="left", size=9)
    axes.spines[["top", "right", "bottom"]].set_visible(False)


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("record", nargs="?", type=Path, default=RECORD)
    parser.add_argument("--out", type=Path, default=PAGE)
    asked = parser.parse_args()
    mpl.rcParams |= {"svg.hashsalt": "prunecast", "svg.fonttype": "path"}
    models = {model["case"]: model for model in json.loads(asked.record.read_text())["models"]}
    figure = Figure(figsize=(8.0, 6.2), layout="constrained")
    all_axes = figure.subplots(len(SHOWN), 1)
    for axes, (case, title) in zip(all_axes, SHOWN.items(), strict=True):
        draw(axes, models[case], title)
    handles, labels = all_axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    figure.savefig(asked.out, metadata={"Date": None})
    print(f"Wrote {asked.out}.")


if __name__ == "__main__":
    main()

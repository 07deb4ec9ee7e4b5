"""How fast are pruned models in PyTorch, measured beside predicted? Renews a picture and tables.

    python -m benchmarks.pytorch.overview [RECORD.json]

Writes `docs/images/whole_models.svg` and, in README.md, docs/results.md and docs/explanation/whole_models.md,
the text between `<!-- whole models begin -->` and `<!-- whole models end -->`. Needs no GPU, but a minute.
"""

import argparse
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from benchmarks.pytorch.fit import RECORD
from benchmarks.pytorch.judge import judged
from prunecast.validation.torch_models.compare import ComparedTime, ModelValidation

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "docs" / "images" / "whole_models.svg"
README = ROOT / "README.md"
PAGE = ROOT / "docs" / "explanation" / "whole_models.md"
RESULTS = ROOT / "docs" / "results.md"
BEGIN, END = "<!-- whole models begin -->\n", "<!-- whole models end -->"


class Title(NamedTuple):
    """Names of a judged case."""

    model: str
    run: str
    in_picture: bool = True


LLAMA, BERT = "Llama-2-7B, 4 blocks", "BERT-base"
TITLES = {
    "llama-2-7b 4 blocks prefill:2048 75%": Title(LLAMA, "prompt of 2048"),
    "llama-2-7b 4 blocks prefill:2048 50%": Title(LLAMA, "prompt of 2048", in_picture=False),
    "llama-2-7b 4 blocks decode:1@1024 75%": Title(LLAMA, "next token after 1024"),
    "llama-2-7b 4 blocks decode:16@1024 75%": Title(LLAMA, "next token, 16 sequences"),
    "bert-base 32x128 75%": Title(BERT, "32 x 128 tokens"),
    "bert-base 32x128 90%": Title(BERT, "32 x 128 tokens", in_picture=False),
    "vit-large-16 32x197 75%": Title("ViT-L/16", "32 images"),
}
"""Case of the record -> names, in the order of the tables."""
Found = Mapping[str, ModelValidation]


def readme_table(found: Found) -> Iterator[str]:
    """Yield the lines of the README's table: measured, and in parentheses predicted."""
    yield "| model and pass | removed | dense ms | pruned ms | speedup |"
    yield "| --- | --- | --- | --- | --- |"
    for name, title in TITLES.items():
        one = found[name]
        times = (
            f"{1e-3 * row.measured_us:.2f} ({1e-3 * row.predicted_us:.2f})" for row in (one.dense, one.sparse)
        )
        speedup = f"**{one.speedup.measured:.2f}** ({one.speedup.predicted:.2f})"
        yield f"| {title.model}, {title.run} | {one.case.sparsity:.0%} | {' | '.join((*times, speedup))} |"


def page_table(found: Found) -> Iterator[str]:
    """Yield the lines of the table of docs/explanation/whole_models.md, with errors."""
    pair = "measured, predicted"
    yield f"| model and pass | removed | dense us: {pair} | pruned us: {pair} | speedup |"
    yield "| --- | --- | --- | --- | --- |"
    for name, title in TITLES.items():
        one = found[name]
        cells = [f"{title.model}, {title.run}", f"{one.case.sparsity:.0%}"]
        for row in (one.dense, one.sparse):
            cells.append(f"{row.measured_us:.0f}, {row.predicted_us:.0f} ({row.error:+.1%})")
        ratio = one.speedup
        cells.append(f"{ratio.measured:.2f}, {ratio.predicted:.2f} ({ratio.error:+.1%})")
        yield f"| {' | '.join(cells)} |"
    yield ""
    yield from errors_sentence(found)


def errors_sentence(found: Found) -> Iterator[str]:
    """Yield a line with the largest errors of all times and of all speedups."""
    time = max(100 * abs(row.error) for one in found.values() for row in (one.dense, one.sparse))
    speedup = max(100 * abs(one.speedup.error) for one in found.values())
    yield f"All seven are within {time:.1f} % of the measured time and {speedup:.1f} % of the speedup."


def with_table(text: str, lines: Iterable[str]) -> str:
    """Return a page with the lines between its markers."""
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    return f"{before}{BEGIN}" + "".join(f"{line}\n" for line in lines) + f"{END}{after}"


WIDTH, BAR, GAP, TOP, LEFT, FULL = 800, 18, 66, 84, 232, 400
"""Sizes of the picture in pixels; FULL is the length of a bar of the dense time."""
STYLE = """
    .page { fill: #ffffff } text { fill: #1f2328; font: 14px system-ui, "Segoe UI", Arial, sans-serif }
    .title { font-size: 17px; font-weight: 600 } .model, .speedup { font-weight: 600 }
    .faint { fill: #59636e }
    .dense { fill: #9aa4af } .pruned { fill: #0072b2 } .predicted { fill: #d55e00; stroke: #ffffff }
    @media (prefers-color-scheme: dark) {
      .page { fill: #0d1117 } text { fill: #f0f6fc } .faint { fill: #9198a1 }
      .dense { fill: #6e7681 } .pruned { fill: #56b4e9 } .predicted { fill: #ff9d57; stroke: #0d1117 }
    }
"""


def bar(kind: str, row: ComparedTime, dense_us: float, y: int, speedup: str = "") -> Iterator[str]:
    """Yield a bar of a measured time with a mark at the predicted one, and its label."""
    length, mark = (FULL * us / dense_us for us in (row.measured_us, row.predicted_us))
    yield f'<rect class="{kind}" x="{LEFT}" y="{y}" width="{length:.1f}" height="{BAR}"/>'
    yield f'<rect class="predicted" x="{LEFT + mark - 3:.1f}" y="{y - 2}" width="6" height="{BAR + 4}"/>'
    x = LEFT + max(length, mark) + 10
    label = f"{kind} {1e-3 * row.measured_us:.2f} ms"
    yield f'<text x="{x:.1f}" y="{y + 14}">{label}<tspan class="speedup" dx="8">{speedup}</tspan></text>'


def picture(found: Found) -> str:
    """Return the SVG: bars of the dense and the pruned time of each model, in shares of the dense time."""
    shown = [name for name, title in TITLES.items() if title.in_picture]
    height = TOP + GAP * len(shown) + 28
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img">',
        "<title>Time of one pass on an H200, dense and with 75 % of the weights removed</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="page" width="{WIDTH}" height="{height}" rx="6"/>',
        '<text class="title" x="16" y="30">One pass in PyTorch on an H200, dense and 75 % pruned</text>',
        f'<text class="faint" x="{LEFT}" y="56">bar: measured</text>',
        '<rect class="predicted" x="356" y="43" width="6" height="16"/>',
        '<text class="faint" x="370" y="56">predicted without a GPU</text>',
        f'<text class="faint" x="16" y="{height - 16}">fp16, each side in the fastest of eager, CUDA graph '
        "and torch.compile; bars are shares of the dense time</text>",
    ]
    for place, name in enumerate(shown):
        one, y = found[name], TOP + GAP * place
        lines.append(f'<text class="model" x="16" y="{y + 14}">{TITLES[name].model}</text>')
        lines.append(f'<text class="faint" x="16" y="{y + BAR + 18}">{TITLES[name].run}</text>')
        dense_us = one.dense.measured_us
        lines += bar("dense", one.dense, dense_us, y)
        lines += bar("pruned", one.sparse, dense_us, y + BAR + 4, f"{one.speedup.measured:.2f}x")
    return "\n".join([*lines, "</svg>", ""])


def renewed(found: Found) -> dict[Path, str]:
    """Return each file that shows these times, with its text as it should be."""
    return {
        PICTURE: picture(found),
        README: with_table(README.read_text(encoding="utf-8"), readme_table(found)),
        PAGE: with_table(PAGE.read_text(encoding="utf-8"), page_table(found)),
        RESULTS: with_table(RESULTS.read_text(encoding="utf-8"), errors_sentence(found)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("record", nargs="?", type=Path, default=RECORD)
    asked = parser.parse_args()
    for file, text in renewed(dict(judged(asked.record))).items():
        file.write_text(text, encoding="utf-8")
        print(f"Wrote {file.relative_to(ROOT)}.")


if __name__ == "__main__":
    main()

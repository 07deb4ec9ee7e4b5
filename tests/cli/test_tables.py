import io
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from prunecast.cli.compare import _show
from prunecast.cli.tables import Page
from prunecast.codesign import Comparison
from prunecast.codesign.compare import GpuRow
from prunecast.launch import Conditions


def printed(rows, *, terminal, width=100):
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=terminal, color_system=None)
    Page(console).table(rows, words=("layer",))
    return out.getvalue()


def row(name, us):
    return {"layer": name, "time us": us}


def test_cells_are_printed_as_they_are():
    text = printed([row("[red]x[/red]", "1.0"), row("a\x1b[31mb\r", "2.0")], terminal=False)
    assert "[red]x[/red]" in text
    assert "a\\x1b[31mb\\r" in text


@given(name=st.text(max_size=20))
def test_any_name_is_safe(name):
    out = io.StringIO()
    Page(Console(file=out, width=100)).say(f"[b]{name}")
    assert all(c.isprintable() for c in out.getvalue().replace("\n", ""))
    assert "[b]" in out.getvalue()


def test_without_a_terminal_there_are_no_drawn_lines():
    assert printed([row("a", "1.0")], terminal=False).isascii()
    assert "─" in printed([row("a", "1.0")], terminal=True)


def test_a_terminal_folds_long_names_but_not_numbers():
    text = printed([row("x" * 90, "123456.0")], terminal=True, width=40)
    assert max(len(line) for line in text.splitlines()) <= 40
    assert "123456.0" in text
    assert text.count("x") == 90


def test_a_terminal_aligns_words_left_and_numbers_right():
    _, names, _, *rows = printed([row("a", "1.0"), row("abc", "22.0")], terminal=True).splitlines()
    words, numbers = zip(
        *(
            (line.index(a), line.index(b))
            for line, a, b in zip(rows, ("a", "abc"), ("1.0", "22.0"), strict=False)
        ),
        strict=True,
    )
    assert words == (names.index("layer"),) * 2
    assert [numbers[0] + 3, numbers[1] + 4] == [names.index("time us") + 7] * 2


def test_without_a_terminal_a_row_is_one_line():
    assert (
        printed([row("x" * 2000, "1.0")], terminal=False, width=40).splitlines()[1]
        == "x" * 2000 + "      1.0"
    )


def test_no_line_ends_in_spaces_without_a_terminal():
    text = printed([{"us": "1.0", "layer": "a"}, {"us": "2.0", "layer": "abc"}], terminal=False)
    assert text.splitlines() == [" us  layer", "1.0  a", "2.0  abc"]


GPU = GpuRow(
    gpu="a100-sxm4-80gb",
    dense_seconds=0.1234,
    seconds=0.0987,
    seconds_low=0.0876,
    seconds_high=0.1234,
    per_s=12345.0,
    memory_bytes=14.3e9,
    gpu_bytes=80 * 10**9,
    fits=True,
    largest_batch=30,
    joules=0.1424,
    cost_per_million=None,
    evidence="published",
)


def shown(*gpus):
    out = io.StringIO()
    page = Page(Console(file=out, width=1000, force_terminal=False, color_system=None))
    _show(Comparison(columns=(), rows=(), unmatched=(), gpus=gpus), page, details=False)
    return out.getvalue()


def test_a_row_for_each_gpu_fits_80_columns():
    far = replace(GPU, gpu="v100-pcie-16gb", fits=False, memory_bytes=164e9, evidence="guess")
    for price in (None, 0.2564):
        text = shown(*(replace(gpu, cost_per_million=price) for gpu in (GPU, far)))
        assert max(map(len, text.splitlines())) <= 80
        assert "14.3  others" in text
        assert "164 no  guess" in text
        assert ("0.256" in text) == (price is not None)


@pytest.mark.parametrize("gpus", [(), (GPU,)])
def test_conditions_are_told_once_for_gpus_and_for_each_file(gpus):
    out, conditions = io.StringIO(), (Conditions("sustained"),) * 2
    page = Page(Console(file=out, width=1000, force_terminal=False, color_system=None))
    columns = ("a", "b")
    compared = Comparison(columns=columns, rows=(), unmatched=(), gpus=gpus, conditions=conditions)
    _show(compared, page, details=False)
    words = "sustained, launched in a graph, operands in DRAM"
    lines = [line for line in out.getvalue().splitlines() if "sustained" in line]
    assert lines == ([words] if gpus else [f"a: {words}", f"b: {words}"])


def test_names_of_gpus_stay_different():
    priced = replace(GPU, cost_per_million=0.2564)
    both = shown(priced, replace(priced, gpu="a100-pcie-80gb"))
    rows = both.splitlines()[2:4]
    assert len({row.split()[0] for row in rows}) == 2


def test_layers_without_a_model_have_no_memory():
    bare = replace(GPU, per_s=None, memory_bytes=None, fits=None, largest_batch=None, joules=None)
    assert shown(bare).splitlines()[1].split() == ["GPU", "dense", "pruned", "interval", "gain", "source"]

"""Roles that one definition should fill, and the definitions that fill them today.

A pattern is searched in each function, in each class without its methods, and in each assignment at the top
of a module. How many may match stands in `pyproject.toml` under `[tool.house.builders]`; a role without a
limit may be filled once.
"""

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from benchmarks.house.sources import Source


class Role(NamedTuple):
    """Something that is built in one place, or will be."""

    pattern: str
    """Regular expression that finds its definitions."""
    removed_by: str = ""
    """What leaves one of several: a row of the review's section 4.8, or an issue."""
    unless: str = ""
    """Regular expression that finds the definitions among them that use another one. Empty for none."""


ROLES = {
    "engine loop over SMs": Role(r"while mem\[G_RETIRED\]"),
    # torch times models where CuPy need not be installed, so each framework has one adapter
    "events of CuPy with times": Role(r"get_elapsed_time\("),
    "events of torch with times": Role(r"\belapsed_time\("),
    "seconds of memory-bound work": Role(r"(/|rate =) .*dram_copy_bytes_per_s"),
    "seconds of attention": Role(r"def attention_call\b"),
    "record of a convolution": Role(r"class (ConvShape|Convolution)\b", "row 27"),
    "layers of a checkpoint": Role(r"def (layers)?_of_checkpoint\b", "row 7"),
    "layers of an ONNX model": Role(r"def (layers)?_of_onnx\b", "row 7"),
    "check of batch and counts": Role(r"def _?check_batch(_counts)?\b", "row 7"),
    "tokens of a layer by default": Role(r"^TOKENS = 4096", "row 7"),
    "seconds of a pass": Role(r"def (pass_seconds|model_seconds|model_time)\b", "row 7"),
    "record of a pruned layer": Role(r"class PrunedLayer\b", "row 19"),
    "recipe": Role(r"class Recipe\b", "row 19"),
    "masks that are subsets of earlier ones": Role(r"class MaskPath\b|def masks_within\b"),
    "list of the tile kernel's configs": Role(
        r"^(TILE_FORMS = |PARTS = \{$|_FORMS = \(|_MMA_FORMS|_CORE_FORMS|_SPARSE_SHAPES)", "row 21"
    ),
    "cycles of a k-step in a ranking": Role(r"def _chain_cycles\b|abreast \* issues", "row 15"),
    # Every packer describes where elements of A are stored; only `gather` puts them there
    "packer of weights": Role(
        r"^def gather\(|def _?pack(ed_weights)?\(", unless=r"\n.*(\bgather|packed_weights|_arrays)\("
    ),
    # `SparseLayer` has weights, bias, density and state dict; layers add what their users construct and call
    "layer that runs sparse weights in torch": Role(
        r"class (Tile)?Sparse(Layer|Linear|Conv\dd)\((?!SparseLayer\b)"
    ),
    "kernel of the package loaded from a cubin": Role(r"cuModuleLoadData"),
    # CuPy launches them with grids of several dimensions and arguments of any kind
    "microbenchmark loaded from a cubin": Role(r"RawModule\("),
    "tokens that a plan is made for": Role(r"def planned_tokens\b", "row 2"),
    "architecture of a device": Role(r"def (arch_of|_arch_of_device)\b", "row 2"),
    "launch with its arguments ready": Role(r"cuLaunchKernel(Ex)?\(", "row 2"),
    "number formats by name": Role(r"^DTYPES = ", "row 2"),
    "costs": Role(r"class Costs\b", "row 6"),
    "interval": Role(r"class Interval\b", "row 12"),
    "figure to draw on": Role(r"= Figure\(|return Figure\(|\.subplots\(", "row 4"),
    "file written aside and renamed": Role(r"os\.replace\(", "the issue on trust, section 3"),
}


class Definition(NamedTuple):
    """A function, a class without its methods, or an assignment at the top of a module."""

    where: str
    """File and line."""
    text: str


def builders(sources: list[Source]) -> dict[str, list[str]]:
    """Files and lines of all definitions that fill each role."""
    found: dict[str, list[str]] = {name: [] for name in ROLES}
    for source in sources:
        roles = [name for name, role in ROLES.items() if re.search(role.pattern, source.text, re.MULTILINE)]
        for where, text in definitions(source) if roles else ():
            for name in roles:
                role = ROLES[name]
                is_other = role.unless and re.search(role.unless, text)
                if re.search(role.pattern, text, re.MULTILINE) and not is_other:
                    found[name].append(where)
    return found


def definitions(source: Source) -> Iterator[Definition]:
    """All definitions of a file, each without the definitions inside it."""
    lines = source.text.splitlines()
    assigned = [node for node in source.tree.body if isinstance(node, ast.Assign | ast.AnnAssign)]
    named = [*source.functions, *source.classes]
    for node in (*named, *assigned):
        inner = {
            line
            for child in named
            if node.lineno <= child.lineno <= child.end_lineno <= node.end_lineno and child is not node
            for line in range(child.lineno, child.end_lineno + 1)
        }
        own = [lines[line - 1] for line in range(node.lineno, node.end_lineno + 1) if line not in inner]
        yield Definition(f"{source.name}:{node.lineno}", "\n".join(own))

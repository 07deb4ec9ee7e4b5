"""Joint products: several matrices (members) that read the same x and are launched as one product.

`sparsify` launches the members that are pruned to tiles as one product and those with 2:4 as another;
`fuse_dense` joins those that stay dense. Each launch has its own prologue, tail and transpose of x, and needs
time to fill the GPU. Members that all have the same pattern are therefore the fastest.
"""

from collections.abc import Collection, Mapping, Sequence

from prunecast.workload.graph.model_graph import Member, ModelGraph, Operation, linear

SIBLINGS = (
    ("q_proj", "k_proj", "v_proj"),
    ("query", "key", "value"),
    ("q_lin", "k_lin", "v_lin"),
    ("q", "k", "v"),
    ("gate_proj", "up_proj"),
    ("wi_0", "wi_1"),
)
"""Names of siblings in one module, in the order in which models call them."""
CROSS_ATTENTION = ("cross", "encoder_attn", "encdec")
"""Parts of the names of modules, in lower case, whose queries read another x than their keys and values."""
WEIGHT = ".weight"
ROWS = 64
"""Rows of the lowest tile of a joint product. Members whose M is not a multiple are launched separately."""


def sibling_groups(columns: Mapping[str, int]) -> list[list[str]]:
    """Group the names of matrices or modules that read the same x.

    Parameters
    ----------
    columns : name of a matrix or module -> K
    """
    groups, taken = [], set()
    for name in columns:
        if name not in taken:
            groups.append(_group(name, columns))
            taken |= set(groups[-1])
    return groups


def _group(name: str, columns: Mapping[str, int]) -> list[str]:
    end = WEIGHT if name.endswith(WEIGHT) else ""
    parent, dot, own = name.removesuffix(WEIGHT).rpartition(".")
    reads_two = any(word in parent.lower() for word in CROSS_ATTENTION)
    for names in SIBLINGS:
        if reads_two and len(names) == 3:
            names = names[1:]
        group = [f"{parent}{dot}{each}{end}" for each in names]
        if own in names and len({columns.get(each) for each in group}) == 1:
            return group
    return [name]


def joint_name(group: Sequence[str]) -> str:
    """Return the name of a joint product.

    Members `a.q_proj.weight` and `a.k_proj.weight` give `a.q_proj+k_proj.weight`.
    """
    end = WEIGHT if group[0].endswith(WEIGHT) else ""
    parent, dot, _ = group[0].removesuffix(WEIGHT).rpartition(".")
    return parent + dot + "+".join(name.removesuffix(WEIGHT).rpartition(".")[2] for name in group) + end


def launched_together(model: ModelGraph, names: Collection[str]) -> list[list[str]]:
    """Return the groups of two or more products among `names` that torch launches as one product.

    The list is empty for other runtimes than torch.
    """
    if model.runtime != "torch":
        return []
    products = model.products
    every = sibling_groups({name: product.k for name, product in products.items()})
    found = [[name for name in group if name in names] for group in every]
    return [group for group in found if len(group) > 1 and not any(products[name].m % ROWS for name in group)]


def together(model: ModelGraph, groups: Sequence[Sequence[str]], *, own_tiles: bool = True) -> ModelGraph:
    """Return the graph with one joint product for each group.

    x -> q, x -> k, x -> v  becomes  x -> q+k+v

    Parameters
    ----------
    own_tiles : True if the members of a group have separate tiles, False if they share tiles
    """
    joint: dict[str, Operation] = {}
    for group in groups:
        members = tuple(Member(name, model[name].m) for name in group)
        first, name = model[group[0]], joint_name(group)
        rows = sum(member.m for member in members)
        joint[name] = linear(name, rows, first.k, first.n, members=members if own_tiles else ())
    return model.merged({name: joint_name(group) for group in groups for name in group}, joint)

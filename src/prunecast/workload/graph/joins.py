"""Matrices that read the same x as one product: `sparsify` launches those together that are pruned to tiles,
another time those with 2:4, and `fuse_dense` those that stay dense.

Each launch has its own prologue, fill of the GPU and tail, and transposes x for itself, so that members that
are pruned alike need the least time.
"""

from collections.abc import Collection, Mapping, Sequence

from prunecast.workload.graph.model_graph import Member, ModelGraph, Operation, linear

SIBLINGS = (
    ("q_proj", "k_proj", "v_proj"),
    ("query", "key", "value"),
    ("gate_proj", "up_proj"),
)
"""Names, side by side in one module, in the order in which models call them."""
WEIGHT = ".weight"
ROWS = 64
"""Every member has whole tiles of so many rows, the lowest of a menu, or is a product of its own."""


def sibling_groups(columns: Mapping[str, int]) -> list[list[str]]:
    """Names of matrices or modules -> K, again: those together that read the same x."""
    groups, taken = [], set()
    for name in columns:
        if name not in taken:
            groups.append(_group(name, columns))
            taken |= set(groups[-1])
    return groups


def _group(name: str, columns: Mapping[str, int]) -> list[str]:
    end = WEIGHT if name.endswith(WEIGHT) else ""
    parent, dot, own = name.removesuffix(WEIGHT).rpartition(".")
    for names in SIBLINGS:
        group = [f"{parent}{dot}{each}{end}" for each in names]
        if own in names and len({columns.get(each) for each in group}) == 1:
            return group
    return [name]


def joint_name(group: Sequence[str]) -> str:
    """One name of all: `a.q_proj.weight` and `a.k_proj.weight` are `a.q_proj+k_proj.weight`."""
    end = WEIGHT if group[0].endswith(WEIGHT) else ""
    parent, dot, _ = group[0].removesuffix(WEIGHT).rpartition(".")
    return parent + dot + "+".join(name.removesuffix(WEIGHT).rpartition(".")[2] for name in group) + end


def launched_together(model: ModelGraph, names: Collection[str]) -> list[list[str]]:
    """The groups of more than one of these products that torch launches as one."""
    if model.runtime != "torch":
        return []
    products = model.products
    every = sibling_groups({name: product.k for name, product in products.items()})
    found = [[name for name in group if name in names] for group in every]
    return [group for group in found if len(group) > 1 and not any(products[name].m % ROWS for name in group)]


def together(model: ModelGraph, groups: Sequence[Sequence[str]]) -> ModelGraph:
    """The graph with one product for each group.

    x -> q, x -> k, x -> v  becomes  x -> q+k+v
    """
    into = {name: joint_name(group) for group in groups for name in group}
    return model.merged(into, {joint_name(group): _joint(model, group) for group in groups})


def _joint(model: ModelGraph, group: Sequence[str]) -> Operation:
    members = tuple(Member(name, model[name].m) for name in group)
    first = model[group[0]]
    return linear(joint_name(group), sum(each.m for each in members), first.k, first.n, members=members)

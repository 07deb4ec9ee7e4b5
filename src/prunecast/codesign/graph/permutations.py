"""Row permutations that cost nothing: C may stay in the order of the tiles if readers can be relabelled."""

from prunecast.codesign.graph.model_graph import ModelGraph


def absorbable_rows(model: ModelGraph, product: str) -> tuple[str, ...]:
    """Products whose columns of A would take over a permutation of the rows of `product`.

    Element-wise work does not care about the order of features, and a product reads them by column number.
    Attention mixes features by head, and norms are followed by the residual stream, whose other writers would
    have to use the same order: with either of them behind it, a permutation cannot be absorbed.

    Returns
    -------
    Names of the products, or nothing where the permutation must be undone (the row scatter of the kernels).
    """
    absorbers: set[str] = set()
    reached = list(model.graph.successors(product))
    while reached:
        name = reached.pop()
        if model[name].kind == "gemm":
            absorbers.add(name)
        elif _keeps_order(model, name):
            reached.extend(model.graph.successors(name))
        else:
            return ()
    return tuple(sorted(absorbers))


def _keeps_order(model: ModelGraph, name: str) -> bool:
    """Whether features may come in any order: one input only, and no mixing of features."""
    return model[name].kind in ("elementwise", "pool") and model.graph.in_degree(name) == 1

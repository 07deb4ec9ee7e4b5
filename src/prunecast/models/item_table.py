"""What an item of any length costs: the whole model asked once for every number of columns."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.models.amounts import amounts_of_kinds
from prunecast.models.case import Case
from prunecast.models.incremental_loops import (
    A_BYTES,
    DEMAND,
    EDGE,
    FETCH,
    FETCH_LAST,
    FIELDS,
    LAST,
    MULTIPLY,
    STEPS,
    TOTALS,
)
from prunecast.models.item_costs import item_costs
from prunecast.models.kinds import ItemKinds
from prunecast.models.terms import FloatArray, Quantity

__all__ = ["ItemTable", "item_table"]


class ItemTable(NamedTuple):
    """Costs by kind and length."""

    kind: npt.NDArray[np.int64]
    """(items,): items of one kind have the same rows, tokens and part in a split."""
    cost: FloatArray
    """(kinds, K + 1, FIELDS): columns as named in `incremental_loops`; the totals are multiply-adds, bytes
    through L2, of C and of partial sums, and those of A and of indices times the share of the tokens."""


def item_table(case: Case) -> ItemTable:
    """Ask `item_costs` for items of 0 to K columns of each kind."""
    kinds, work, rows = case.amounts.kinds, case.plan.work, case.plan.tiles.rows_per_tile
    example = kinds.example
    tokens = work.token_stop[example] - work.token_start[example]
    sizes = np.stack((tokens, rows[work.tile[example]], work.parts[example], work.owner[example]), axis=1)
    _, first, of_kind = np.unique(sizes, axis=0, return_index=True, return_inverse=True)
    cost = np.zeros((first.size, case.plan.k + 1, FIELDS))
    for row, item in zip(cost, example[first], strict=True):
        row[:] = _costs_by_length(case, int(item))
    return ItemTable(of_kind.reshape(-1)[kinds.of_item].astype(np.int64), cost)


def _costs_by_length(case: Case, item: int) -> FloatArray:
    """(K + 1, FIELDS) of items that are like one of the plan's but for their length."""
    columns = np.arange(case.plan.k + 1, dtype=np.int32)
    kinds = ItemKinds(
        of_item=columns.astype(np.int64),
        example=np.full(columns.size, item, np.int64),
        members=np.ones(columns.size),
    )
    amounts = amounts_of_kinds(case.plan, kinds, columns)
    costs = item_costs(case._replace(amounts=amounts))
    whole, share = amounts.whole, amounts.tokens / case.plan.n
    rows = np.zeros((columns.size, FIELDS))
    for field, cycles in (
        (FETCH, costs.fetch),
        (FETCH_LAST, costs.fetch_last),
        (MULTIPLY, costs.multiply),
        (LAST, costs.last),
        (EDGE, costs.edge),
        (DEMAND, costs.demand),
    ):
        rows[:, field] = cycles
    rows[:, STEPS], rows[:, A_BYTES] = amounts.step_count, whole[:, Quantity.A]
    totals = (
        whole[:, Quantity.FMA],
        whole[:, Quantity.L2],
        whole[:, Quantity.C],
        amounts.edges[:, Quantity.PARTIALS_OUT],
        whole[:, Quantity.A] * share,
        whole[:, Quantity.INDEX] * share,
    )
    rows[:, TOTALS:] = np.stack(totals, axis=1)
    return rows

"""`Surrogate`: a vendor's library as this project sees it.

Its source is not public. General physics (roofline, warp programs, occupancy) stand in for it, and tables say
which kernels it has and takes, each with library version, date and source. It plans like any kernel, so that
the same engines time it.

Tables are CSV files in `tables/`, one row a kernel, a family or a choice, which says for which architectures
it holds, of which library version it was learnt, when, and from what. A GPU or a library version is added by
adding rows; rows of a newer version stand before older ones.
"""

import csv
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any

from prunecast.errors import BadInput
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.kernel import Kernel, LaunchTraits
from prunecast.plan.kernel_plan import KernelPlan

Row = MappingProxyType[str, str]


@cache
def table(name: str) -> tuple[Row, ...]:
    """All rows of `tables/NAME.csv`, in their order."""
    text = (resources.files(__package__) / "tables" / f"{name}.csv").read_text(encoding="utf-8")
    rows = tuple(MappingProxyType(row) for row in csv.DictReader(text.splitlines()))
    if any(None in row or None in row.values() for row in rows):
        raise BadInput(f"tables/{name}.csv: a row has more or fewer entries than the first line")
    return rows


@cache
def rows_for(name: str, compute_capability: int) -> tuple[Row, ...]:
    """Rows whose `sm` lists the compute capability, else those of the nearest lower one that is listed."""
    listed = {sm for row in table(name) for sm in numbers(row["sm"])}
    nearest = max((sm for sm in listed if sm <= compute_capability), default=min(listed))
    return tuple(row for row in table(name) if nearest in numbers(row["sm"]))


def numbers(entry: str) -> tuple[int, ...]:
    """Whole numbers of an entry: apart by spaces, or the two ends of a range."""
    return tuple(int(number) for number in entry.replace("-", " ").split())


@dataclass(frozen=True, slots=True, kw_only=True)
class Surrogate:
    """A library behind the interface of the project's own kernels.

    Parameters
    ----------
    library : its name, e.g. `cuBLAS`
    package : with its costs, `costs/sm_*.toml`
    families : the table in `tables/` that lists its kernel families by architecture
    configs : (what is multiplied, n, dtype, gpu) -> configs that it may run, the likeliest first
    plan : (what is multiplied, n, dtype, gpu), keyword `config` -> plan of one, by default of the first
    traits : (plan, gpu) -> what it launches besides: split-K reductions, fills, partition kernels
    """

    library: str
    package: str
    families: str
    configs: Callable[..., Iterable[Any]]
    plan: Callable[..., KernelPlan]
    traits: Callable[[KernelPlan, GpuSpec], LaunchTraits]

    def kernel(self, name: str, meaning: str, **attributes: Any) -> Kernel:
        """The record of a kernel that this library runs.

        attributes : others of `Kernel`
        """
        return Kernel(
            name=name,
            meaning=meaning,
            plan=self.plan,
            configs=self.configs,
            traits=self.traits,
            library=True,
            costs=self.package,
            **attributes,
        )

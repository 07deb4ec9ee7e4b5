"""`Surrogate`: model of a vendor's library, with the interface of the project's own kernels.

The source of the library is not public. The library is modelled with general physics (roofline, warp
programs, occupancy) and with tables of its kernels and of the kernels that it chooses; each table names the
library version, the date and the source. A surrogate makes plans like any kernel, so that the same engines
predict its time.

Tables are CSV files in `tables/`, with one row per kernel, family or choice. Each row contains the
architectures to which it applies, the library version, the date and the source. To support a new GPU or
library version, add rows; rows of a newer version come before older ones.
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
    """Return all rows of `tables/NAME.csv` in file order, each a mapping from column name to text.

    Raises BadInput if a row has more or fewer entries than the header.
    """
    text = (resources.files(__package__) / "tables" / f"{name}.csv").read_text(encoding="utf-8")
    rows = tuple(MappingProxyType(row) for row in csv.DictReader(text.splitlines()))
    if any(None in row or None in row.values() for row in rows):
        raise BadInput(f"tables/{name}.csv: a row has more or fewer entries than the first line")
    return rows


@cache
def rows_for(name: str, compute_capability: int) -> tuple[Row, ...]:
    """Return the rows of `tables/NAME.csv` for a compute capability, in file order.

    The column `sm` lists the compute capabilities of a row. If no row lists the requested one, the rows of
    the nearest lower one are returned, or those of the lowest one if none is lower.
    """
    listed = {sm for row in table(name) for sm in numbers(row["sm"])}
    nearest = max((sm for sm in listed if sm <= compute_capability), default=min(listed))
    return tuple(row for row in table(name) if nearest in numbers(row["sm"]))


def numbers(entry: str) -> tuple[int, ...]:
    """Return the integers in a table entry, such as `80 86 87`, or the two ends of a range such as `2-8`."""
    return tuple(int(number) for number in entry.replace("-", " ").split())


@dataclass(frozen=True, slots=True, kw_only=True)
class Surrogate:
    """A library with the interface of the project's own kernels.

    Parameters
    ----------
    library : name of the library, e.g. `cuBLAS`
    package : package that contains the costs of the library, `costs/sm_*.toml`
    families : name of the table in `tables/` that lists the library's kernel families by architecture
    configs : (map or sizes, n, dtype, gpu) -> configs that the library may run, the likeliest first
    plan : (map or sizes, n, dtype, gpu, keyword `config`) -> plan of a config, by default the first
    traits : (plan, gpu) -> `LaunchTraits` with the time of additional launches: split-K reductions, fills,
        partition kernels
    """

    library: str
    package: str
    families: str
    configs: Callable[..., Iterable[Any]]
    plan: Callable[..., KernelPlan]
    traits: Callable[[KernelPlan, GpuSpec], LaunchTraits]

    def kernel(self, name: str, meaning: str, **attributes: Any) -> Kernel:
        """Return the record of a kernel that this library runs.

        Parameters
        ----------
        name, meaning : as in `Kernel`
        attributes : further attributes of `Kernel`
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

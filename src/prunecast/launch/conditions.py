"""`Conditions`: the three conditions under which the time of a launch is measured or predicted.

state   the SM clock: `burst` (short work with rests) or `sustained` (back to back, at the power limit). The
        clocks of each state are in `hardware/clock.py`
launch  how launches are enqueued: in a CUDA graph (`graph`) or one by one in a stream (`stream`), where the
        host limits the rate, even if launches could overlap. `floor.py` contains the overhead of each mode
l2      the operands that are in L2 when a launch begins (`CacheState`). `context.py` turns it into DRAM rates

The conditions do not depend on each other, and are no part of a plan. A new value of `state` is a new key of
`CLOCKS` in `hardware/clock.py`; measuring it is a new entry of `TIMED` in `validation/measure/suite_run.py`.
A new value of `l2` is a name in `L2_STATES`, its words in `Conditions.words`, and the fractions of A, B and C
that L2 contains in `context.gpu_as_found`. ARCHITECTURE.md ("To change how a layer is timed") lists which
commands accept and which files measure and state each condition.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

from prunecast.errors import BadInput, check_choice
from prunecast.hardware.clock import STATES
from prunecast.hardware.spec import GpuSpec

LAUNCHES = ("graph", "stream")
"""Launch modes: in a CUDA graph, or one by one in a stream."""
L2_STATES = ("cold", "model", "warm")
"""Contents of L2 when a launch begins:

cold   operands were last used so long ago that L2 has evicted them, as in the recorded suites
model  the preceding layer has just written B; weights are cold unless those of the whole model fit in L2
warm   the same product is repeated on the same operands

Activations reuse the same memory: if C fits in L2, the next launch overwrites it before it is evicted. If
data are somewhat larger than the usable part of L2, a part of them stays in L2, since L2 does not evict
strictly by age.
"""


class CacheState(NamedTuple):
    """State of L2 at the beginning of each launch of a plan."""

    name: str = "cold"
    """One of `L2_STATES`."""
    weight_bytes: float = float("inf")
    """Bytes of the weights of the whole model in the dtype of its launches; only the state `model` uses this
    number. A kernel that packs weights in fewer bits is assumed to run the whole model."""


COLD = CacheState()


@dataclass(frozen=True, slots=True, order=True)
class Conditions:
    """Conditions of a launch; the docstring of the module explains them. The order is that of the texts.

    Parameters
    ----------
    state : one of `hardware.STATES`
    launch : one of `LAUNCHES`
    l2 : which operands are in L2 when the launch begins

    Raises
    ------
    BadInput : an unknown state, launch mode or L2 state
    """

    state: str = "burst"
    launch: str = "graph"
    l2: CacheState = COLD

    def __post_init__(self) -> None:
        check_choice("state", self.state, STATES)
        check_choice("launch", self.launch, LAUNCHES)
        check_choice("l2", self.l2.name, L2_STATES)

    @classmethod
    def of(cls, entries: Mapping[str, Any], where: str | Path = "") -> Self:
        """Return the conditions in a JSON object or a table's row; the usual ones for missing entries.

        Raises
        ------
        BadInput : an unknown value; the message begins with `where`, the place of the entries, if it is given
        """
        found = {name: str(entries.get(name, usual))[:40] for name, usual in USUAL.document().items()}
        try:
            return cls(found["state"], found["launch"], CacheState(found["l2"]))
        except BadInput as error:
            raise BadInput(f"{where}: {error}" if where else str(error)) from None

    def document(self) -> dict[str, str]:
        """Return the entries of JSON objects."""
        return {"state": self.state, "launch": self.launch, "l2": self.l2.name}

    @property
    def words(self) -> str:
        """Text for tables, e.g. `burst, launched in a graph, operands in DRAM`."""
        where = {"cold": "operands in DRAM", "model": "B in L2", "warm": "operands in L2"}[self.l2.name]
        return f"{self.state}, launched in a {self.launch}, {where}"

    def launch_s(self, gpu: GpuSpec) -> float:
        """Return the seconds of a launch that does not overlap with the preceding one."""
        return {"graph": gpu.graph_launch_s, "stream": gpu.stream_launch_s}[self.launch]


USUAL = Conditions()
"""A burst in a CUDA graph with operands in DRAM: the conditions of the recorded suites."""

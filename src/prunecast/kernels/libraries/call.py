"""`LibraryCall`: a launch of a library's kernel that is predicted without a plan and without warp programs.

Attention and fused experts are such kernels. They are modelled with general physics and fitted tables. The
result contains the predicted seconds, their bounds, the limiting resource, and the evidence for the bounds.

`tables/call_errors.csv` contains the bounds: the interval of measured over predicted time that contains 90 %
of new measurements, by library, case and GPU. A row for an architecture such as `sm_90` applies to GPUs of
that architecture that have no row themselves. A row for the GPU `other` applies to all remaining GPUs; it was
determined on GPUs that were held out of the fit.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.libraries.library_tables import table

OTHER_GPUS = "other"
NOTHING_MEASURED = ("any", "any", OTHER_GPUS)
"""Library, case and GPU of the bounds that apply where nothing was measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryCall:
    """One call of a library and its predicted time.

    Parameters
    ----------
    library : name of a folder of `kernels/libraries`, e.g. `attention`
    kernel : kernel that the library is assumed to run, e.g. `FlashAttention 3`
    parts : name of a part of the time (e.g. `launch`, `sms`, `memory`) -> seconds; the sum is the total time
    bound : the limiting resource, or `latency`
    seconds_low, seconds_high : interval that contains 90 % of new measurements
    evidence : measurements that the interval is based on: `published` (of this GPU), `GPUs of its
        architecture`, `other GPUs`, or `guess`
    """

    library: str
    kernel: str
    parts: Mapping[str, float]
    bound: str
    seconds_low: float
    seconds_high: float
    evidence: str

    @classmethod
    def of_parts(
        cls, library: str, case: str, gpu: GpuSpec, *, kernel: str, parts: Mapping[str, float], bound: str
    ) -> "LibraryCall":
        """Return a call whose time is the sum of `parts`, with the bounds of `call_error` for `case`."""
        seconds = sum(parts.values())
        low, high, evidence = call_error(library, case, gpu.name, f"sm_{gpu.compute_capability}")
        return cls(
            library=library,
            kernel=kernel,
            parts=parts,
            bound=bound,
            seconds_low=seconds * low,
            seconds_high=seconds * high,
            evidence=evidence,
        )

    @property
    def seconds(self) -> float:
        """Predicted time in seconds, the launch included."""
        return sum(self.parts.values())


class CallError(NamedTuple):
    """Interval of measured over predicted time, and the evidence for it."""

    low: float
    high: float
    evidence: str


def call_error(library: str, case: str, gpu: str, architecture: str = "") -> CallError:
    """Return the error bounds of a kind of call on a GPU, from `tables/call_errors.csv`.

    Parameters
    ----------
    library, case : library, and the kind of call in that table, e.g. `attention` and `engine prefill`
    gpu : name of the GPU's spec
    architecture : e.g. `sm_90`; its row applies if the table has no row for this GPU
    """
    of_case = {(row["library"], row["case"], row["gpu"]): row for row in table("call_errors")}
    evidence = {
        (library, case, gpu): "published",
        (library, case, architecture): "GPUs of its architecture",
        (library, case, OTHER_GPUS): "other GPUs",
        NOTHING_MEASURED: "guess",
    }
    found = next(key for key in evidence if key in of_case)
    return CallError(float(of_case[found]["low"]), float(of_case[found]["high"]), evidence[found])

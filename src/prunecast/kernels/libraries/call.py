"""`LibraryCall`: a launch of a library's kernel that is predicted without a plan and without warp programs.

Attention and fused experts are such kernels: their surrogates are general physics with fitted tables. The
answer has the fields that every launch has: seconds, bounds, limiting resource, and evidence.

`tables/call_errors.csv` has the bounds: measured over predicted time that 90 % of new rows keep, by library
and case, and by GPU where rows of it were fitted. Rows of an architecture, `sm_90`, apply to its other GPUs,
and the row of GPU `other`, from GPUs that were held out, to all others.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.libraries.surrogate import table

OTHER_GPUS = "other"
NOTHING_MEASURED = ("any", "any", OTHER_GPUS)
"""Library, case and GPU of the bounds that apply where nothing was measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryCall:
    """One call of a library and its predicted time.

    Parameters
    ----------
    library : folder of `kernels/libraries`, e.g. `attention`
    kernel : the kernel that is assumed, e.g. `FlashAttention 3`
    parts : part of the time -> seconds, e.g. `launch`, `tensor`, `dram`; they add up to the time
    bound : the limiting resource, or `latency`
    seconds_low, seconds_high : bounds that 90 % of new measurements keep
    evidence : `published` (rows of this GPU), `GPUs of its architecture`, `other GPUs`, or `guess`
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
        """Return a call with the bounds of its kind, see `call_error`."""
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
    """Bounds of measured over predicted time, with their evidence."""

    low: float
    high: float
    evidence: str


def call_error(library: str, case: str, gpu: str, architecture: str = "") -> CallError:
    """Return the bounds of a kind of call on a GPU.

    Parameters
    ----------
    case : the name of the kind in `tables/call_errors.csv`, e.g. `prefill`
    gpu : name of the spec
    architecture : e.g. `sm_90`, whose row applies if nothing was fitted on this GPU
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

"""`MeasuredPoint`: a measured time beside its prediction, as a caller hands it over."""

from typing import NamedTuple


class MeasuredPoint(NamedTuple):
    """One case of a recorded run."""

    case: str
    kernel: str
    measured_s: float
    predicted_s: float
    low_s: float
    high_s: float
    """Interval of the prediction."""

    @property
    def inside(self) -> bool:
        """Whether the interval holds what was measured."""
        return self.low_s <= self.measured_s <= self.high_s

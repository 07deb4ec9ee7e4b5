"""A goal and what was reached, one line each; benchmarks print, they never fail."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """One number that the project wants.

    Parameters
    ----------
    name : what is measured
    limit : the goal, in `unit`
    unit : unit of goal and result
    at_least : whether the result should be at least the limit, else at most
    """

    name: str
    limit: float
    unit: str
    at_least: bool = False


def print_goal(goal: Goal, reached: float) -> None:
    """Print goal, result and verdict on one line."""
    met = reached >= goal.limit if goal.at_least else reached <= goal.limit
    sign = ">=" if goal.at_least else "<="
    verdict = "met" if met else "MISSED"
    print(f"{goal.name:<66} {reached:10.4g} {goal.unit:<8} goal {sign} {goal.limit:g}  {verdict}")

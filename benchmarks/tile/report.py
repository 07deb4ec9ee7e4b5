"""Tables of a record of the tile benchmark, beside its goals; needs no GPU."""

import math
from typing import Any

from benchmarks.goals import Goal, print_goal
from benchmarks.tile.cases import LARGE, LAYERS, TILE_ROWS


def line(entry: dict[str, Any]) -> str:
    """One case on one line."""
    if "burst" not in entry:
        return f"{entry['name']:<40} WRONG"
    burst, plain = entry["burst"], entry.get("burst_no_pdl")
    case = entry["case"]
    useful = 2 * case["m"] * case["k"] * case["n"] * entry["density"] / burst["us"] * 1e-6
    without = f" no-pdl {plain['us']:8.1f} ({plain['speedup']:.2f}x)" if plain else ""
    return (
        f"{entry['name']:<38} {entry['block'][0]}x{entry['block'][1]:<4}"
        f"{entry['dense_us']:8.1f} us dense {burst['us']:8.1f} us {burst['speedup']:5.2f}x {useful:4.0f} TF"
        f" {burst['clock_mhz'] or 0:5.0f} MHz{without}"
    )


def _geometric_mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def print_tables(record: dict[str, Any]) -> None:
    """All cases of a record, then what they reach beside the goals."""
    checks = record["checks"]
    print(f"\n{record['device']['nvidia-smi']}")
    print(f"checks: {sum(c['passes'] for c in checks)} of {len(checks)} right")
    done = [e for e in record["cases"] if e.get("variant", "tile") == "tile" and "burst" in e]
    for entry in record["cases"]:
        print(line(entry))
    goals = {0.25: (3.6, 3.0), 0.5: (1.9, 1.75), 0.1: (7.5, 5.2)}
    for density, (large, every) in goals.items():
        equal = [e for e in done if e["case"]["density"] == density and e["case"]["kept"] == "equal"]
        equal = [e for e in equal if e["case"]["n"] > 64]
        for title, layers, goal in (("five large", LARGE, large), ("twelve", LAYERS, every)):
            _print_speedup(f"STSpMM {1 - density:.0%} sparse, {title}", equal, layers, goal)
    _print_other_goals(done)


def _print_speedup(
    title: str, entries: list[dict[str, Any]], layers: tuple[tuple[int, int, int], ...], goal: float
) -> None:
    """Mean over layers of the better height of tiles, which is the pruner's to choose, and of each height."""
    names = {"x".join(map(str, layer)) for layer in layers}
    own = [entry for entry in entries if entry["layer"] in names]
    best = _best_of_heights(own)
    if not best:
        return
    heights = {rows: [e["burst"]["speedup"] for e in own if _rows(e) == rows] for rows in TILE_ROWS}
    each = ", ".join(f"{rows} rows {_geometric_mean(found):.3g}" for rows, found in heights.items() if found)
    name = f"{title} ({len(best)} measured; {each})"
    print_goal(Goal(name=name, limit=goal, unit="x", at_least=True), _geometric_mean(best))


def _rows(entry: dict[str, Any]) -> int:
    """Height of the tiles; the first records had one height."""
    return int(entry["case"].get("rows", TILE_ROWS[0]))


def _best_of_heights(entries: list[dict[str, Any]]) -> list[float]:
    """The better speedup of each layer."""
    best: dict[str, float] = {}
    for entry in entries:
        best[entry["layer"]] = max(entry["burst"]["speedup"], best.get(entry["layer"], 0.0))
    return list(best.values())


def _print_other_goals(done: list[dict[str, Any]]) -> None:
    by_name = {e["name"]: e["burst"] for e in done}
    dense = _best_of_heights([e for e in done if e["case"]["density"] == 1.0])
    if dense:
        share = Goal(name="dense identity map, share of cuBLAS speed", limit=97.0, unit="%", at_least=True)
        print_goal(share, 100 * _geometric_mean(dense))
    for name, title, limit in (
        ("4096x4096x4096 d=0.92 equal", "8 % sparse against dense", 1.0),
        ("11008x4096x16 d=0.25 equal", "N = 16, 11008x4096, 75 % sparse", 2.5),
    ):
        if name in by_name:
            print_goal(Goal(name=title, limit=limit, unit="x", at_least=True), by_name[name]["speedup"])

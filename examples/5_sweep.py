"""Two GPUs, two sparsities, two shapes: kept in one file, so that a second run computes nothing."""

import tempfile
from pathlib import Path

from prunecast.codesign.sweep import SweepStore, expand, open_executor, run_sweep


def main() -> None:
    cases = expand(
        gpus=["h200-sxm", "a100-sxm4-80gb"],
        shapes=[(1024, 1024, 4096), (4096, 1024, 4096)],
        patterns=["tile-wise:128"],
        sparsities=[0.5, 0.9],
    )
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):
            with SweepStore(Path(folder) / "sweep.sqlite") as store, open_executor(workers=1) as executor:
                print(run_sweep(cases, store, executor))
                rows = store.rows()
    for row in sorted(rows, key=lambda row: row["seconds"])[:3]:
        print(row["gpu"], row["m"], row["sparsity"], row["kernel"])


if __name__ == "__main__":  # worker processes import this file
    main()

"""Makes weights.safetensors from the weights.npz and training.json of a machine without safetensors."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from weights_file import save_safetensors


def main() -> None:
    """Converts in the folder named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent, help="holds weights.npz")
    folder = parser.parse_args().folder
    with np.load(folder / "weights.npz", allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    print(save_safetensors(arrays, json.loads((folder / "training.json").read_text()), folder))


if __name__ == "__main__":
    main()

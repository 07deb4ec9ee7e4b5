"""`export`: write the predicted latencies of a model in the format of a simulator of LLM serving."""

import csv
import importlib.util
from pathlib import Path
from typing import Any

from prunecast.arguments import checked
from prunecast.codesign.export import aiconfigurator, llmservingsim
from prunecast.codesign.export.serving_times import ServingTimes
from prunecast.codesign.sweep.pictures import write_parquet
from prunecast.errors import BadInput, check_choice
from prunecast.files import OutputFolder, check_outputs, folder_aside
from prunecast.hardware import GpuSpec, spec_files
from prunecast.workload.layers import Source, files_of

FORMATS = ("aiconfigurator", "llmservingsim")
EXPORTED = ("bf16", "fp16")
"""Formats of weights that are exported, the first by default."""


@checked
def export(
    weights: Source, *, gpu: str | GpuSpec, format: str, out: str | Path, **settings: Any
) -> ServingTimes:
    """Predict the latencies of a model, write them to a folder, and return them.

    Parameters
    ----------
    weights, gpu, settings : as in `ServingTimes.of`
    format : `aiconfigurator` for a systems folder of AIConfigurator; `llmservingsim` for a profile bundle of
        LLMServingSim
    out : folder to write; it must be empty or not exist

    Returns
    -------
    the times that were written

    Raises
    ------
    BadInput : an argument cannot be used, the folder is not empty, or a package is missing; then nothing is
        written
    """
    check_choice("format", format, FORMATS)
    folder = Path(out)
    check_empty(folder)
    check_outputs([OutputFolder(what="out", path=folder, names=())], [*files_of(weights), *spec_files(gpu)])
    dtype = check_choice("dtype", settings.get("dtype") or EXPORTED[0], EXPORTED)
    if format == "aiconfigurator" and importlib.util.find_spec("pyarrow") is None:
        raise BadInput("export to aiconfigurator needs the package pyarrow: pip install 'prunecast[sweep]'")
    times = ServingTimes.of(weights, gpu=gpu, **settings)
    with folder_aside(folder) as unfinished:
        if format == "aiconfigurator":
            _write_systems(unfinished, times)
        else:
            _write_bundle(unfinished, times, dtype)
    return times


def check_empty(folder: Path) -> None:
    """Raise BadInput if the folder exists and is not empty."""
    if folder.is_dir() and any(folder.iterdir()):
        raise BadInput(f"out: wanted an empty or a new folder, {folder} has files")


def _write_systems(folder: Path, times: ServingTimes) -> None:
    system, found = aiconfigurator.system_name(times.gpu), aiconfigurator.tables(times)
    for path, content in aiconfigurator.documents(times, found).items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(yaml_text(content), encoding="utf-8")
    for table in found:
        place = f"data/{system}/{table.family}/{aiconfigurator.BACKEND}/{aiconfigurator.VERSION}"
        write_parquet(table.rows, folder / place / f"{table.name}_perf.parquet")


def _write_bundle(folder: Path, times: ServingTimes, dtype: str) -> None:
    bundle = folder / llmservingsim.folder(times, dtype)
    own = bundle / f"tp{times.gpus}"
    own.mkdir(parents=True)
    (bundle / "meta.yaml").write_text(yaml_text(llmservingsim.meta(times, dtype)), encoding="utf-8")
    for name, rows in llmservingsim.tables(times).items():
        with (own / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(
                {key: f"{value:.6g}" if isinstance(value, float) else value for key, value in row.items()}
                for row in rows
            )


def yaml_text(content: Any, indent: str = "") -> str:
    """Return nested dictionaries as YAML text.

    Other values (texts, numbers, lists) are written as JSON, which is valid YAML.
    """
    import json

    lines = []
    for key, value in content.items():
        if isinstance(value, dict) and value:
            lines.append(f"{indent}{key}:\n{yaml_text(value, indent + '  ')}")
        else:
            lines.append(f"{indent}{key}: {json.dumps(value)}\n")
    return "".join(lines)

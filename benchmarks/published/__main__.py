"""Predictions beside kernel times that others published, of GPUs that nobody here owns.

python -m benchmarks.published FOLDER [--every 6] [--engines model simulator] [--only attention gemm]

FOLDER holds tables that are no part of this project. The file name selects the reader and the GPU:

    gemm_bf16_GPU.csv          dense products (AIConfigurator, Apache-2.0)
    attention_bf16_GPU.csv     fused attention (AIConfigurator, Apache-2.0)
    moe_bf16_GPU.csv           layers of experts (AIConfigurator, Apache-2.0)
    gemm_fp8_GPU.csv           fp8 products with their quantising (AIConfigurator, Apache-2.0)
    power_bf16_GPU.csv         watts of dense products (AIConfigurator, Apache-2.0)
    layers_GPU_ORGANISATION_MODEL_DTYPE.csv    layers inside vLLM (LLMServingSim, MIT)
    gemm_fp8_alone_GPU.csv     fp8 products without it (pipeweave, Apache-2.0)

GPU is the name of a spec or its beginning, with `-` or `_` between words: `h100`, `rtx_pro_6000`. Further
files with names of their own are listed in `tables.py`: V100 and T4 (DeepBench, Apache-2.0), V:N:M kernels of
the RTX 3090 (VENOM, Apache-2.0), one token on the RTX 3090 (macko_spmv, MIT), and pairs of dense and 2:4
products of the A100 PCIe, H100 PCIe, B200 and RTX 4090 (vllmbench, Apache-2.0).

A hash of the sizes of a row decides whether constants may be fitted to it; errors of `judge` rows are quoted.
"""

import argparse
from pathlib import Path

from benchmarks.published.calls import READERS, print_calls
from benchmarks.published.products import ENGINES, print_products
from benchmarks.published.tables import TABLES, dense_tables


def main() -> None:
    """Print the errors of all tables in a folder."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--every", type=int, default=1, help="use only the first of that many rows")
    parser.add_argument("--engines", nargs="*", default=["model"], choices=tuple(ENGINES))
    parser.add_argument("--only", nargs="*", default=[], help="beginnings of the names of files to read")
    parser.add_argument(
        "--intervals", type=Path, help="write bounds of products that 90 %% of fit rows keep to this file"
    )
    asked = parser.parse_args()
    wanted = tuple(asked.only) or ("",)
    for path in sorted(asked.folder.glob("*.csv")):
        if path.name.startswith(wanted) and path.name.startswith(tuple(READERS)):
            print_calls(path, asked.every)
    tables = [table for table in (*TABLES, *dense_tables(asked.folder)) if table.file.startswith(wanted)]
    text = print_products(tables, asked.folder, asked.every, asked.engines)
    if asked.intervals:
        asked.intervals.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

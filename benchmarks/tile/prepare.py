"""Plans and cubins of the tile benchmark, made without a GPU."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.on_gpu.plans import GPU, save_plans
from benchmarks.tile.cases import full_cases, quick_cases, tile_map
from prunecast.choice import fastest_plan
from prunecast.kernels.device.build import SOURCES as DEVICE
from prunecast.kernels.device.build import CompiledKernel, compile_cubin
from prunecast.kernels.device.form import ARCH
from prunecast.kernels.tile.config import wgmma_configs
from prunecast.kernels.tile.cuda.operator import CLUSTERS, SOURCES, TOKEN_SHAPES, TOKEN_SOURCE

CHANGES = ({}, {"GUARD": 1})
FORMS = ((128, 256), (128, 192), (128, 128), (128, 64), (64, 256), (64, 128))


def _jobs() -> list[tuple[str, dict[str, int], bool]]:
    """Source, defines and whether spills are allowed, of every build that the benchmark asks for."""
    found: list[tuple[str, dict[str, int], bool]] = []
    for dtype in ("fp16", "bf16"):
        element = {"BF16": 1} if dtype == "bf16" else {}
        found.append(("fill_rows.cu", {"BIAS": 0, "ACTIVATION": 0, **element}, False))
        plain = {"BIAS": 0, "ACTIVATION": 0, **element}
        for changes in CHANGES:
            spills = "GUARD" in changes
            found += [("tile_sm90.cu", {**_form(form, dtype), **plain, **changes}, spills) for form in FORMS]
            found += [(TOKEN_SOURCE, {**form, **plain, **changes}, spills) for form in _token_forms(dtype)]
    return found


def _token_forms(dtype: str) -> list[dict[str, int]]:
    return [{**_form(shape, dtype), "CLUSTER": n} for shape in TOKEN_SHAPES for n in CLUSTERS]


def _form(form: tuple[int, int], dtype: str) -> dict[str, int]:
    variant = next(v for v in wgmma_configs(GPU, dtype, "wgmma") if v.shape[:2] == form)
    return {
        "BLOCK_M": form[0],
        "BLOCK_N": form[1],
        "STAGES": variant.resources.stages,
        "PLAN_SHARED_BYTES": variant.resources.shared_bytes,
        "PLAN_THREADS": variant.resources.threads,
    }


def _path(source: str) -> Path:
    return next(path for path in (SOURCES / source, DEVICE / source) if path.exists())


def prepare(folder: Path) -> None:
    """Write `plans.npz`, `plans.json` and `cubin/` into a folder."""
    cases = [*full_cases(), *quick_cases()]
    save_plans(
        folder, {case.name: fastest_plan("stspmm", tile_map(case), case.n, "fp16", GPU) for case in cases}
    )

    def build(job: tuple[str, dict[str, int], bool]) -> CompiledKernel:
        source, defines, allow_spills = job
        return compile_cubin(_path(source), ARCH, defines, allow_spills=allow_spills, folder=folder / "cubin")

    with ThreadPoolExecutor(2) as pool:
        built = list(pool.map(build, _jobs()))
    print(f"{len(built)} cubins, {sum(k.cubin.stat().st_size for k in built) / 1e6:.1f} MB")

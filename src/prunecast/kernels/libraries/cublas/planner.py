"""`dense`: the vendor's dense product (cuBLAS). Its choices are not public: the fastest form is taken."""

from dataclasses import replace

import numpy as np

from prunecast.errors import BadInput
from prunecast.hardware.occupancy import occupancy
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.libraries.cublas.clusters import one_line_cycles, sharing_blocks
from prunecast.kernels.libraries.cublas.forms import MOST_TILE_ALONE, dense_forms
from prunecast.kernels.libraries.cublas.programs import dense_programs
from prunecast.kernels.libraries.cublas.start import first_stage_cycles
from prunecast.kernels.libraries.cublas.taken import taken_forms
from prunecast.kernels.libraries.cublas.times import FormTimes, form_times, uncut_times
from prunecast.kernels.libraries.cublas.unaligned import (
    copy_lane_bytes,
    is_aligned,
    unaligned_kernels,
    with_narrow_copies,
)
from prunecast.kernels.libraries.cublas.unaligned_choice import taken_kernels
from prunecast.kernels.tile.choose import Candidate, best, reads_per_element
from prunecast.kernels.tile.config import TileConfig
from prunecast.kernels.tile.splitting import item_cost, item_cycles
from prunecast.kernels.tile.tile_plan import check_tokens, items_of, resident_blocks
from prunecast.patterns.tiling import dense_tile_map
from prunecast.plan.kernel_plan import KernelPlan, WorkList
from prunecast.plan.order import Assigned, assign_hardware, assign_longest_first
from prunecast.plan.program import WarpProgram
from prunecast.plan.work_items import split_items

__all__ = ["choose_dense", "plan_dense"]

MOST_OF_ONE_TOKEN = 1536
"""Rows and columns, see `_taken_for_one_token`."""


def plan_dense(
    m: int, k: int, n: int, dtype: str, gpu: GpuSpec, *, tokens_lie_together: bool = False
) -> KernelPlan:
    """Plan C (m, n) = A (m, k) @ B (k, n) without any pruning.

    With native asynchronous tensor instructions the grid is persistent, and neighbouring blocks share what
    they read: on sm_90 a cluster of up to eight reads it from L2 once, on sm_100 each block of a pair holds
    half. Elsewhere the hardware dispatches one block per tile of C. Where it pays the k range is split; a
    second kernel then adds the parts up.

    Parameters
    ----------
    tokens_lie_together : a row of C is all tokens of one output, as own kernels write it. Then their number
        says whether rows are aligned; as torch has C, the outputs of a token together, it does not matter

    Raises
    ------
    BadInput : a size below 1, or a dtype that the GPU has no tensor cores for
    PlanDoesNotFit : no form of the kernel fits
    """
    found = choose_dense(m, k, n, dtype, gpu, tokens_lie_together=tokens_lie_together)
    chosen = best(found, "dense", gpu)
    config = _as_launched(chosen, gpu)
    tiles = dense_tile_map(m, k, config.shape.block_m)
    items = items_of(tiles, config, n, gpu)
    parts = split_items(items, np.full(items.tile.size, chosen.pieces), config.shape.block_k)
    assigned = _assign(parts, chosen, gpu)
    return KernelPlan(
        kernel="dense",
        n=n,
        dtype=dtype,
        tiles=tiles,
        work=assigned.work,
        schedule=assigned.schedule,
        blocks=assigned.blocks,
        shape=config.shape,
        resources=config.resources,
        programs=_programs(config, m, k, n, chosen.pieces, gpu),
        tensor=config.tensor,
        b_access="dense_tile",
    )


def choose_dense(
    m: int, k: int, n: int, dtype: str, gpu: GpuSpec, *, tokens_lie_together: bool = False
) -> list[Candidate]:
    """All forms that fit, each with its best number of parts, fastest first; errors as `plan_dense`.

    Of equally fast ones the form that reads less comes first.
    """
    if m <= 0 or k <= 0:
        raise BadInput(f"A must have at least one row and one column, got {m} x {k}")
    check_tokens(n)
    if gpu.has_wgmma and tokens_lie_together and not is_aligned(k, n, dtype):
        return [
            _candidate(way.kernel.form, way.parts, way.step_cycles, way.seconds, m, n, gpu)
            for way in taken_kernels(m, k, n, dtype, gpu)
        ]
    forms = dense_forms(gpu, dtype, tokens=n)
    if not forms:
        return []
    found = _timed(forms, form_times(forms, m, k, n, gpu), m, n, gpu)
    found = _fastest_first(found, _taken_for_one_token(m, k, n, gpu))
    taken = taken_forms(gpu, dtype, k, n)
    if not taken or found[0].pieces > 1:
        return found
    return _fastest_first(_timed(taken, uncut_times(taken, m, k, n, gpu), m, n, gpu))


def _timed(forms: tuple[TileConfig, ...], times: FormTimes, m: int, n: int, gpu: GpuSpec) -> list[Candidate]:
    """Each form with its best number of parts."""
    column = np.argmin(times.seconds, axis=1)
    seconds = times.seconds[np.arange(len(forms)), column]
    return [
        _candidate(
            form, int(times.parts[column[i]]), float(times.step_cycles[i]), float(seconds[i]), m, n, gpu
        )
        for i, form in enumerate(forms)
    ]


def _fastest_first(found: list[Candidate], taken: tuple[int, int] | None = None) -> list[Candidate]:
    """The tile that is taken whatever its time before all others."""
    return sorted(
        found,
        key=lambda c: (
            c.config.shape[:2] != taken,
            c.cycles,
            reads_per_element(c.config),
            c.config.shape.block_n,
        ),
    )


def _taken_for_one_token(m: int, k: int, n: int, gpu: GpuSpec) -> tuple[int, int] | None:
    """The tile that the library takes for one token and few columns, which does not pay: 8 or 16 rows.

    Seen with 512 to 1536 rows and 512 to 1536 columns (24 products captured on an H200, 2026-11-21); 2048
    rows, or 3072 columns, run in tiles of 64 rows.
    """
    if n > 1 or not gpu.has_wgmma or max(m, k) > MOST_OF_ONE_TOKEN:
        return None
    return (8, 64) if m <= 8 * gpu.sm_count else (16, 64)


def _candidate(
    form: TileConfig, pieces: int, step_cycles: float, seconds: float, m: int, n: int, gpu: GpuSpec
) -> Candidate:
    items = -(-m // form.shape.block_m) * -(-n // form.shape.block_n) * pieces
    blocks_per_sm = occupancy(form.resources, gpu).blocks_per_sm
    return Candidate(
        config=form,
        pieces=pieces,
        blocks_per_sm=blocks_per_sm,
        items=items,
        waves=items / (gpu.sm_count * blocks_per_sm),
        step_cycles=step_cycles,
        cycles=seconds * gpu.max_clock_hz,
    )


def _as_launched(chosen: Candidate, gpu: GpuSpec) -> TileConfig:
    """Warpgroups that take tiles in turn: where an SM has but one, the other warpgroup has nothing to do."""
    config = chosen.config
    block_m, block_n, _ = config.shape
    many = chosen.items > gpu.sm_count
    if not gpu.has_wgmma or config.tensor_path != "wgmma" or many or block_m * block_n > MOST_TILE_ALONE:
        return config
    return replace(config, warpgroups=1, part_m=block_m, part_n=block_n)


def _programs(
    config: TileConfig, m: int, k: int, n: int, parts: int, gpu: GpuSpec
) -> tuple[WarpProgram, ...]:
    if not gpu.has_wgmma:
        return dense_programs(config, weights_shared=1, tokens_shared=1)
    if config.tensor_path != "wgmma":
        return _unaligned_programs(config, copy_lane_bytes(k, n, config.dtype))
    block_m, block_n, _ = config.shape
    tile = np.array(block_m), np.array(block_n)
    shared = sharing_blocks(*tile, m, n, float(parts))
    ring = np.array(float(config.resources.stages * config.shape.block_k))
    start = first_stage_cycles(m, k, n, config.element_bytes, ring, np.array(float(parts)), gpu)
    return dense_programs(
        config,
        weights_shared=int(shared.weights),
        tokens_shared=int(shared.tokens),
        start_cycles=round(float(start)),
        line_cycles=int(one_line_cycles(*tile, m, n, gpu)),
    )


def _unaligned_programs(config: TileConfig, lane_bytes: int) -> tuple[WarpProgram, ...]:
    kernels = unaligned_kernels(config.dtype, lane_bytes)
    cycles = next(kernel.copy_cycles for kernel in kernels if kernel.form == config)
    programs = dense_programs(config, weights_shared=1, tokens_shared=1)
    return tuple(with_narrow_copies(p, cycles, lane_bytes) for p in programs)


def _assign(parts: WorkList, chosen: Candidate, gpu: GpuSpec) -> Assigned:
    config = chosen.config
    if config.tensor_path != "wgmma":
        return assign_hardware(parts)
    cycles = item_cycles(parts, config.shape.block_k, item_cost(chosen, gpu))
    return assign_longest_first(parts, cycles, resident_blocks(config, gpu, parts.tile.size))

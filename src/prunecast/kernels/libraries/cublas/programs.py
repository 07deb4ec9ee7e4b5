"""Warp programs of cuBLAS's kernels, derived from those of the tile kernel with dense tiles of B."""

from dataclasses import replace
from functools import lru_cache

import numpy as np

from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.libraries.cublas.configs import LibraryKernel
from prunecast.kernels.libraries.cublas.launches import (
    LONGER_SIDE,
    MOST_CTAS_IN_LARGE_CLUSTERS,
    PAIR,
    SharedReads,
    cublas_costs,
    multicast,
)
from prunecast.kernels.tile.config import CONSUMER_WARPGROUPS, TileConfig, weight_bytes, wgmma_use
from prunecast.kernels.tile.programs.warp_programs import warp_programs
from prunecast.plan.kernel_plan import BlockShape
from prunecast.plan.program import Charge, Code, Instruction, Op, WarpProgram, When
from prunecast.plan.tensor_rate import tensor_fma_per_clk

LANES, STEP_BYTES = 32, 128
"""Lanes of a warp; bytes of a row of A in a k-step. Kind: definition, 64 columns of two bytes in names like
`128x128_64x6`."""


def _multicast_of(shape: BlockShape, m: int, n: int, slices: int = 1) -> SharedReads:
    """Return the multicast of one config."""
    found = multicast(np.array([float(shape.block_m)]), np.array([float(shape.block_n)]), m, n, float(slices))
    return SharedReads(*(int(count[0]) for count in found))


def cublas_programs(
    kernel: LibraryKernel, m: int, k: int, n: int, slices: int, gpu: GpuSpec
) -> tuple[WarpProgram, ...]:
    """Return the warp programs of a CTA in C (m, n) = A (m, k) @ B (k, n) with `slices` split-K slices."""
    config = kernel.config
    if config.tensor_path != "wgmma" or not gpu.has_wgmma:
        return _copying_warps(config, kernel.rules["copy_cycles"], kernel.rules["align_bytes"], gpu)
    producer, consumer = _warpgroups(config, _multicast_of(config.shape, m, n, slices), gpu)
    # With one token, all clusters request the same line of B from L2
    ctas = -(-m // config.shape.block_m)
    wait = int(gpu.l2_line_cycles * ctas / (LONGER_SIDE if ctas <= MOST_CTAS_IN_LARGE_CLUSTERS else PAIR))
    step = (*producer.step, Instruction(Op.ISSUE, wait, leader=True)) if wait and n == 1 else producer.step
    # Consumers wait for the latency of DRAM, for the stage at the L2 port of their SM, and for the stages
    # that DRAM delivers out of order. DRAM works meanwhile: only a share of that time delays the requests
    share = cublas_costs(gpu.compute_capability)["serial_first_stage_share"]
    port_cycles = config.shape.block_k // 16 * config.share_bytes_per_k16 / gpu.l2_port_bytes_per_clk_per_sm
    out_of_order = _first_stage_bytes(config, m, k, n, slices, gpu) * gpu.clock_burst_hz[0]
    requested = Instruction(Op.ISSUE, 0, 20, charges=(Charge("dram_s_per_byte", share * out_of_order),))
    arrived = (Charge("dram_latency_cycles"), Charge("dram_s_per_byte", out_of_order))
    complete = Instruction(Op.ISSUE, round(port_cycles), 20, charges=arrived)
    return replace(producer, step=step, start=(requested,)), replace(consumer, start=(complete,))


@lru_cache(maxsize=256)
def _copying_warps(
    config: TileConfig, copy_cycles: float, lane_bytes: float, gpu: GpuSpec
) -> tuple[WarpProgram, ...]:
    """Return the programs of kernels whose warps both copy and multiply."""
    programs = tuple(_without_fix_up(p) for p in warp_programs(config, "dense_tile"))
    if config.pair > 1:  # TMA writes the operands that tcgen05 reads
        return tuple(replace(p, step=_reading(p.step, operand_bytes(config, gpu))) for p in programs)
    if config.tensor == "none":
        return tuple(replace(p, step=_on_cuda_cores(p.step), end=_on_cuda_cores(p.end)) for p in programs)
    per_byte = copy_cycles * gpu.shared_bytes_per_clk_per_sm / (LANES * lane_bytes)
    return tuple(_narrow_copies(p, per_byte) if per_byte else p for p in programs)


@lru_cache(maxsize=256)
def _warpgroups(config: TileConfig, shared: SharedReads, gpu: GpuSpec) -> tuple[WarpProgram, WarpProgram]:
    """Return the programs of producer and consumers of a kernel for sm_90."""
    programs = warp_programs(config, "dense_tile", multicast=shared.tokens)
    producer, consumer = (_without_fix_up(program) for program in programs)
    step: Code = tuple(
        i._replace(multicast=shared.weights) if i.op is Op.COPY_A else i for i in producer.step
    )
    # A warpgroup without a tile waits, and is counted with the producer's warps
    idle = 4 * (CONSUMER_WARPGROUPS - config.warpgroups)
    return replace(producer, step=step, warps=producer.warps + idle), _consumer(consumer, config, gpu)


def operand_bytes(config: TileConfig, gpu: GpuSpec) -> int:
    """Return the bytes that one consumer warp reads from shared memory per 16 columns of A.

    Two rules apply only to wgmma kernels. One warpgroup that multiplies a whole tile reads each operand once,
    while two warpgroups read one operand twice; the smaller number is used. The share of the bulk copies'
    writes that does not delay these reads (`hidden_write_share`) is subtracted.
    """
    reads = config.operand_bytes_per_warp_per_k16
    if config.tensor_path != "wgmma":
        return reads
    alone = _lone_warpgroup_bytes(config, gpu)
    reads = reads if alone is None else min(reads, alone // config.consumer_warps)
    share = cublas_costs(gpu.compute_capability)["hidden_write_share"]
    return max(reads - int(share * config.share_bytes_per_k16 / config.consumer_warps), 0)


def _lone_warpgroup_bytes(config: TileConfig, gpu: GpuSpec) -> int | None:
    """Return the bytes that a warpgroup reads per 16 columns if it has the whole tile.

    Return None if the tile is too large for one warpgroup, or no instruction fits.
    """
    block_m, block_n, _ = config.shape
    if block_m * block_n > cublas_costs(gpu.compute_capability)["lone_warpgroup_elements"]:
        return None
    use = wgmma_use(block_m, block_n, config.element_bytes, sparse=False)
    return use.operand_bytes if use else None


def group_cycles(config: TileConfig, gpu: GpuSpec) -> int:
    """Return the cycles that a k-step's wgmmas need beyond their latency and their time in the tensor pipe.

    If one warpgroup has the whole tile, they are the cycles by which the operand reads exceed the time in the
    tensor pipe. If two warpgroups share the tile, they are a measured constant.
    """
    if config.warpgroups == CONSUMER_WARPGROUPS:
        return cublas_costs(gpu.compute_capability).whole("group_cycles")
    k16 = config.shape.block_k // 16
    reads = (_lone_warpgroup_bytes(config, gpu) or 0) / gpu.shared_bytes_per_clk_per_sm
    rate = tensor_fma_per_clk(gpu, config.dtype, config.tensor)
    return max(round(k16 * (reads - config.fma_per_warp_per_k16 * config.consumer_warps / rate)), 0)


def _first_stage_bytes(config: TileConfig, m: int, k: int, n: int, slices: int, gpu: GpuSpec) -> float:
    """Return the bytes that DRAM delivers before the first stage is complete, limited by the DRAM queue.

    All CTAs fill their pipeline stages at once, and DRAM does not serve its queue in the order of stages, so
    the first stage is complete when almost everything has arrived. Example: 768 x K with 512 tokens in tiles
    of 64 x 64 needs, in addition to the time of its products, 4,040 cycles for K = 256, and 4,660 for K from
    1024 to 6144 (cuBLAS 13.1, H200, 2026-11-21). If the stages hold all of K, the bytes are at most what DRAM
    delivers in `ring_step_cycles` for each k-step of a slice after the first, because the simulator and the
    models account for the DRAM traffic themselves.
    """
    asked = config.resources.stages * config.shape.block_k * slices
    weights = weight_bytes(m, 16, config.element_bytes, sparse=config.is_sparse) / 16
    queued = min(min(k, asked) * (weights + n * config.element_bytes), gpu.dram_queue_bytes)
    if asked < k:
        return queued
    steps = -(-k * config.element_bytes // (STEP_BYTES * slices))
    most_s = cublas_costs(gpu.compute_capability)["ring_step_cycles"] * (steps - 1) / gpu.clock_burst_hz[0]
    return min(queued, most_s * gpu.dram_bytes_per_s)


def _on_cuda_cores(code: Code) -> Code:
    """Return the code for CUDA cores: without waits for tensor cores or for operands, which are prefetched.

    The lanes are arranged so that two quarters of a warp share a pass of the shared-memory port.
    """
    kept = (i for i in code if i.op is not Op.WAIT_MMA and not (i.op is Op.ISSUE and i.charges))
    return tuple(
        # Only operand reads of this step change; other SHARED instructions store prefetched data
        i._replace(amount=i.amount // 2, posted=True)
        if i.op is Op.SHARED and i.per_k16 and not i.ahead
        else i
        for i in kept
    )


def _without_fix_up(program: WarpProgram) -> WarpProgram:
    """Return the program without the reduction: slices write their sums, and a second kernel adds them.

    All layers share the library's workspace, which stays in L2.
    """
    end = tuple(
        i._replace(posted=True, whole=False) if i.op is Op.STORE_PARTIAL else i
        for i in program.end
        if i.when is not When.OWNER
    )
    return replace(program, end=end)


def _consumer(program: WarpProgram, config: TileConfig, gpu: GpuSpec) -> WarpProgram:
    """Return the program of the consumer warps.

    Both warpgroups stage C in the same shared memory and therefore synchronize first.
    """
    read, apart = operand_bytes(config, gpu), group_cycles(config, gpu)

    def changed(instruction: Instruction) -> Instruction:
        if instruction.op is Op.MMA:
            return instruction._replace(operand_bytes=read)
        return instruction._replace(amount=apart) if instruction.op is Op.ISSUE else instruction

    step = tuple(map(changed, program.step))
    wait = 1 + next(at for at, i in enumerate(program.end) if i.op is Op.WAIT_MMA)
    sync = Instruction(Op.SYNC)
    return replace(program, step=step, end=(*program.end[:wait], sync, *program.end[wait:], sync))


def _reading(code: Code, operands: int) -> Code:
    return tuple(i._replace(operand_bytes=operands) if i.op is Op.MMA else i for i in code)


def _narrow_copies(program: WarpProgram, per_byte: float) -> WarpProgram:
    """Return the program with the extra cost of copies with few bytes per lane on the path to
    shared memory.
    """

    def narrow(instruction: Instruction) -> Instruction:
        if instruction.op not in (Op.COPY_A, Op.GATHER_B):
            return instruction
        # The amount of COPY_A is per warp and 16 columns, that of GATHER_B is for all warps and one column
        a = instruction.op is Op.COPY_A
        size = instruction.amount if a else 16 * instruction.amount // program.warps
        return instruction._replace(operand_bytes=max(round(size * per_byte) - size, 0))

    return replace(program, fill=tuple(map(narrow, program.fill)), step=tuple(map(narrow, program.step)))

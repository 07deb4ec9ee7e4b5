"""`LaunchContext`: a plan on a GPU in a sequence of similar launches, the input of simulator and closed form.

A plan describes the launch itself. This module adds the properties that depend on the GPU: whether the launch
overlaps the preceding one (programmatic dependent launch, PDL), on which SMs its CTAs are expected, which
part of the prologue is already done, which operands are in L2, and which other kernels are launched. The
`Conditions` of the launch (`conditions.py`) are part of the context.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.hardware.costs import load_costs
from prunecast.hardware.occupancy import Occupancy, occupancy
from prunecast.hardware.placement import Columns, burst_placements, expected_places, resident_share
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.kernel import LaunchTraits
from prunecast.kernels.table import KERNELS
from prunecast.launch.conditions import USUAL, CacheState, Conditions
from prunecast.plan.kernel_plan import DTYPE_BYTES, OUTPUT_BYTES, KernelPlan, PlanDoesNotFit, Schedule
from prunecast.plan.misaligned import ROW_BYTES
from prunecast.plan.program import Op, WarpProgram, bind

GRAIN = 64
"""Fractions of operands in L2 are rounded to multiples of 1 / `GRAIN`, so that similar launches share one
cached result of `_with_l2`. Kind: choice, fine enough.
"""


def gpu_as_found(plan: KernelPlan, gpu: GpuSpec, l2: CacheState) -> GpuSpec:
    """Return the spec with DRAM rates and latency adjusted to the fraction of the operands that is in L2.

    The state `cold` returns `gpu` itself. Other states differ in the fractions of A, of B and of C that L2
    contains; a new state is a branch that computes these fractions. Two simplifications are deliberate:

    * A and B get one DRAM rate, from the fraction of their bytes together. Both engines have a single rate of
      DRAM reads.
    * Weights that a kernel reads evict-first (`LaunchTraits.weights_evict_first`) are kept like other data,
      although L2 evicts them before B. No product of such a kernel was measured with operands in L2.
    """
    if l2.name == "cold":
        return gpu
    element = DTYPE_BYTES[plan.dtype]
    kernel = KERNELS[plan.kernel]
    a, b = kernel.read_bytes(plan), plan.k * plan.n * element
    c = plan.c_rows * plan.n * OUTPUT_BYTES[plan.dtype]
    # Fraction of the bytes of A and B that L2 contains, and fraction of C that the next launch overwrites in
    # L2 before it is evicted
    if l2.name == "warm":
        read = written = _kept(a + b + c, gpu)
    elif l2.name == "model":
        weights = max(l2.weight_bytes * kernel.weight_bytes(plan.dtype) / element, a)
        of_a, of_b = _kept(weights, gpu), _kept(b, gpu)
        read, written = (of_a * a + of_b * b) / max(a + b, 1.0), _kept(b + c, gpu)
    else:
        raise BadInput(f"gpu_as_found has no rule for the L2 state {l2.name!r:.40}")
    return _with_l2(gpu, round(GRAIN * read), round(GRAIN * written))


def _kept(size: float, gpu: GpuSpec) -> float:
    """Return the fraction of `size` bytes of data that is still in L2 if all of them are used in turn.

    The fraction falls linearly with `size`, from 1 at the largest size that is kept completely to 0 at the
    smallest size of which nothing is kept. The launch costs contain both sizes as ratios to the usable L2.
    """
    costs = launch_costs(gpu)
    all_kept, none_kept = costs["l2_all_kept_ratio"], costs["l2_none_kept_ratio"]
    return min(max((none_kept - size / gpu.l2_usable_bytes) / (none_kept - all_kept), 0.0), 1.0)


@lru_cache(maxsize=1024)
def _with_l2(gpu: GpuSpec, read: int, written: int) -> GpuSpec:
    """Return the spec of a GPU whose L2 serves the fractions `read` and `written` of the traffic.

    Both are in units of 1 / `GRAIN`. DRAM rates are divided by the miss rate, up to the L2 rates. If all
    reads hit L2, the DRAM latency is set to that of L2; otherwise it is unchanged. Calls with equal arguments
    return the same object, because other caches compare specs by identity.
    """
    missed, stored = 1.0 - read / GRAIN, 1.0 - written / GRAIN
    beyond = gpu.dram_latency_cycles - gpu.l2_latency_cycles
    return replace(
        gpu,
        dram_bytes_per_s=min(gpu.dram_bytes_per_s / max(missed, 1e-3), gpu.l2_bytes_per_s),
        dram_write_bytes_per_s=min(gpu.dram_write_bytes_per_s / max(stored, 1e-3), gpu.l2_store_bytes_per_s),
        dram_latency_cycles=gpu.l2_latency_cycles + (round(missed * beyond) if read == GRAIN else beyond),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LaunchContext:
    """A plan on a GPU in a sequence of similar launches.

    Parameters
    ----------
    plan, gpu : the launch, and the GPU that runs it, with the DRAM rates of `conditions.l2`
    conditions : clock, launch mode and contents of L2
    costs : entry name -> value of the launch costs on the GPU's architecture, `costs/sm_*.toml`
    fit : occupancy, computed with the registers of the compiled kernel
    programs : warp programs of the plan with the costs of the GPU's architecture. They omit the part that
        co-resident blocks complete before the preceding launch ends
    pdl : True if blocks may start before the preceding launch has ended (programmatic dependent launch); it
        needs a product without additional launches for rows of zeros or padded copies
    co_resident : True if blocks of the next launch are resident on SMs concurrently with those of this one;
        each block has one item
    places : (blocks,) block slot of each block, for co-resident launches in which some blocks share an SM;
        slot p is on SM p mod SMs. None if blocks are assigned to SMs round robin
    prefetches_weights : True if producer warps read indices and weights before `griddepcontrol.wait`
    weights_evict_first : True if weights are read with an evict-first policy, so that B stays in L2
    pdl_release_s : seconds from the last stores of the preceding launch until `griddepcontrol.wait` returns
        in blocks that are already waiting; 0 if some blocks start later
    other_launches_s : seconds of other kernels that a library launches, e.g. a split-K reduction
    zero_rows : number of rows of C in no tile, which a second launch fills with zeros
    copies_rows : True if rows of B and C are copied to and from aligned rows by other launches
    held : number of blocks that can be resident on the GPU at once
    crowd : number of blocks that are resident on the SM with the most blocks
    prologue_is_hidden : True if all blocks run their whole prologue during the preceding launch
    prologue_cycles : cycles from the start of a block until it may read B
    prologue_under_preceding_cycles : cycles of the prologue that may overlap the preceding launch
    store_latency_cycles : cycles from a block's last store until its data are in L2
    copies_through_registers : True if warps load the data of the next k-step, including rows of B, into
        registers and write them to shared memory one k-step later: they request no data earlier
    block_interval_s : seconds between the starts of two blocks of the first wave. If blocks that are only one
        k-step ahead started in the same cycle, they would request every k-step together, and DRAM would be
        idle while they multiply. 0 for others, whose fitted launch overhead contains the starts of all blocks
    l2_power : electric power per byte of L2 traffic, relative to bytes that each block reads separately
    """

    plan: KernelPlan
    gpu: GpuSpec
    conditions: Conditions
    costs: Mapping[str, float]
    fit: Occupancy
    programs: tuple[WarpProgram, ...]
    pdl: bool = False
    co_resident: bool = False
    places: npt.NDArray[np.int64] | None = None
    prefetches_weights: bool = False
    weights_evict_first: bool = False
    pdl_release_s: float = 0.0
    other_launches_s: float = 0.0
    zero_rows: int = 0
    copies_rows: bool = False
    held: int = field(init=False)
    crowd: int = field(init=False)
    prologue_is_hidden: bool = field(init=False)
    prologue_cycles: float = field(init=False)
    prologue_under_preceding_cycles: float = field(init=False)
    store_latency_cycles: int = field(init=False)
    copies_through_registers: bool = field(init=False)
    block_interval_s: float = field(init=False)
    l2_power: float = field(init=False)

    def __post_init__(self) -> None:
        sms, fit = self.gpu.sm_count, self.fit.blocks_per_sm
        object.__setattr__(self, "held", fit * sms)
        crowd = max(min(fit, -(-self.plan.blocks // sms)), 1)
        if self.places is not None:
            crowd = int(np.bincount(self.places % sms).max())
        object.__setattr__(self, "crowd", crowd)
        # Both engines and the memory rules read these several times per launch
        object.__setattr__(self, "prologue_is_hidden", prologue_is_hidden(self))
        object.__setattr__(self, "prologue_cycles", prologue_cycles(self))
        object.__setattr__(self, "prologue_under_preceding_cycles", prologue_under_preceding_cycles(self))
        object.__setattr__(self, "store_latency_cycles", store_latency_cycles(self))
        steps = [i for program in self.programs for i in program.step]
        in_registers = any(i.op is Op.LOAD_B and i.per_k16 and i.ahead == 1 for i in steps)
        object.__setattr__(self, "copies_through_registers", in_registers)
        object.__setattr__(self, "block_interval_s", in_registers * self.gpu.block_interval_s)
        object.__setattr__(self, "l2_power", l2_power(self))

    def check_fit(self) -> None:
        """Raise `PlanDoesNotFit` if no block fits on an SM, or a persistent grid does not fit on the GPU."""
        plan, gpu = self.plan, self.gpu
        if self.fit.blocks_per_sm == 0:
            raise PlanDoesNotFit(
                f"{plan.kernel}: no block fits on an SM of {gpu.name}, limit: {self.fit.limiter}"
            )
        if plan.schedule is not Schedule.HARDWARE and plan.blocks > self.held:
            raise PlanDoesNotFit(
                f"{plan.kernel} has {plan.blocks} persistent blocks, {gpu.name} holds {self.held} at once"
            )


def launch_context(plan: KernelPlan, gpu: GpuSpec, conditions: Conditions = USUAL) -> LaunchContext:
    """Return the context of a launch of `plan` on `gpu`: the properties that the plan does not determine."""
    gpu = gpu_as_found(plan, gpu, conditions.l2)
    kernel, costs = KERNELS[plan.kernel], launch_costs(gpu)
    traits = kernel.traits(plan, gpu) if kernel.traits else LaunchTraits()
    registers = traits.registers_per_thread or plan.resources.registers_per_thread
    fit = occupancy(plan.resources._replace(registers_per_thread=registers), gpu)
    co_resident, programs = traits.co_resident and plan.pdl and plan.item_count > 0, plan.programs
    places, resident = None, 0.0
    if co_resident:
        columns = block_columns(plan)
        start, per_column = gpu.block_start_cycles, traits.cycles_per_column
        resident = resident_share(
            columns, fit.blocks_per_sm, gpu.sm_count, column_cycles=per_column, start_cycles=start
        )
        places = expected_places(columns, fit.blocks_per_sm, gpu.sm_count)
        programs = traits.prologue(resident) if traits.prologue else programs
    zero_rows = zero_row_count(plan)
    copies_rows = traits.aligns_rows and has_copied_rows(plan.kernel, plan.n, plan.dtype)
    kernel_costs = load_costs(kernel.costs, gpu.compute_capability) if kernel.costs else None
    return LaunchContext(
        plan=plan,
        gpu=gpu,
        conditions=conditions,
        costs=costs,
        fit=fit,
        programs=bind(programs, kernel_costs, gpu),
        pdl=plan.pdl and zero_rows == 0 and not copies_rows,
        co_resident=co_resident,
        places=places,
        prefetches_weights=plan.pdl and traits.prefetches_weights,
        weights_evict_first=traits.weights_evict_first,
        pdl_release_s=costs["release_s"] if resident >= 1.0 else 0.0,
        other_launches_s=traits.other_launches_s,
        zero_rows=zero_rows,
        copies_rows=copies_rows,
    )


def prologue_is_hidden(context: LaunchContext) -> bool:
    """Return True if all blocks run their whole prologue during the preceding launch, on SMs without blocks.

    This is so if both launches fit on the GPU together with one block per SM. Without this rule, predictions
    for products of at most 66 blocks are 900 to 1,500 cycles too slow.
    """
    plan = context.plan
    one_each = not context.co_resident and plan.item_count == plan.blocks
    return one_each and 2 * plan.blocks <= context.gpu.sm_count and context.pdl


def prologue_cycles(context: LaunchContext) -> float:
    """Return the cycles from the start of a block until it may read B: set-up, and indices read from DRAM."""
    gpu = context.gpu
    # Issue cycles before a warp's first step, without waiting for data
    setting_up = [sum(i.amount for i in (*p.start, *p.begin) if i.op is Op.ISSUE) for p in context.programs]
    return float(gpu.block_start_cycles + max(setting_up, default=0) + gpu.dram_latency_cycles)


def prologue_under_preceding_cycles(context: LaunchContext) -> float:
    """Return the cycles of a block's prologue that may overlap the preceding launch.

    It is 0 without PDL, for co-resident launches, and if the whole prologue is hidden (`prologue_is_hidden`).
    """
    if context.prologue_is_hidden or context.co_resident or not context.pdl:
        return 0.0
    gpu, blocks, prologue = context.gpu, context.plan.blocks, context.prologue_cycles
    # With more blocks than SMs in hardware order, the block that ends last is in a later wave, on an SM whose
    # first block had started early
    rounds = context.plan.schedule is Schedule.HARDWARE and blocks > gpu.sm_count
    if rounds or 0 < blocks < gpu.sm_count:
        return prologue
    return min(prologue, context.costs["most_hidden_prologue_cycles"])


def store_latency_cycles(context: LaunchContext) -> int:
    """Return the cycles from a block's last store until its data are in L2.

    Tile kernels store with the copy engine. Their latency is the measured `GpuSpec.store_latency_cycles`, the
    cycles until the engine has read the whole tile of C. In co-resident launches and in 2:4 with wgmma, warps
    store directly, and the latency is

        l2 + min(bytes of a tile of C / `store_latency_measured_bytes`, 1) * (store - l2)

    with l2 = `l2_latency_cycles` and store = `store_latency_cycles` of the spec.
    """
    plan, gpu = context.plan, context.gpu
    if not context.co_resident and plan.tensor != "sparse-wgmma":
        return gpu.store_latency_cycles
    tile = min(plan.shape.block_m, plan.m) * min(plan.shape.block_n, plan.n) * OUTPUT_BYTES[plan.dtype]
    beyond = gpu.store_latency_cycles - gpu.l2_latency_cycles
    share = min(tile / context.costs["store_latency_measured_bytes"], 1.0)
    return gpu.l2_latency_cycles + max(round(beyond * share), 0)


def has_copied_rows(kernel: str, tokens: int, dtype: str) -> bool:
    """Return True if rows of B and C must be copied to and from aligned rows for one of the project's
    kernels.
    """
    needs_rows = dtype != "fp8" and tokens > KERNELS[kernel].unaligned_tokens  # B of fp8 is (tokens, K)
    return needs_rows and tokens * DTYPE_BYTES[dtype] % ROW_BYTES != 0


def zero_row_count(plan: KernelPlan) -> int:
    """Return the number of rows of C that are in no tile and that a second launch must write; 0 if the kernel
    writes all rows.
    """
    return 0 if KERNELS[plan.kernel].writes_all_rows else plan.m - int(plan.tiles.row_index.size)


def launch_costs(gpu: GpuSpec) -> Mapping[str, float]:
    """Return the values of the launch costs of the GPU's architecture; all kernels share them."""
    return load_costs("prunecast.launch", gpu.compute_capability).values


def block_columns(plan: KernelPlan) -> Columns:
    """Return the columns that each block multiplies, or 1 for each block if all are equal.

    The placement of blocks depends only on the proportions of these numbers.
    """
    columns = plan.multiplied_columns
    return (1,) * columns.size if (columns == columns[:1]).all() else tuple(columns.tolist())


def burst_contexts(context: LaunchContext) -> list[tuple[float, LaunchContext]]:
    """Return a pair (fraction of launches, context) for each block placement that occurs in a burst.

    A burst is a series of back-to-back launches of the same plan. The fractions sum to 1.
    """
    blocks, sms = context.plan.item_count, context.gpu.sm_count
    if context.places is None or blocks > sms or len(set(block_columns(context.plan))) > 1:
        return [(1.0, context)]
    placements = burst_placements(blocks, context.fit.blocks_per_sm, sms)
    return [(one.share, replace(context, places=one.places)) for one in placements] or [(1.0, context)]


def l2_power(context: LaunchContext) -> float:
    """Return the electric power per byte of L2 traffic, relative to bytes that each block reads separately.

    It is below 1 if several blocks read the same rows of B at the same time, since L2 then serves them with
    one access. It is 1 for kernels that read dense tiles of B, because their programs model shared reads
    themselves. It is also 1 for 2:4: the additional power of sparse tensor cores cancels this saving.
    """
    plan = context.plan
    if plan.b_access == "dense_tile" or plan.tensor.startswith("sparse"):
        return 1.0
    exponent, density = context.costs["out_of_step_power"], plan.tiles.kept_per_tile / plan.k
    return gathered_power(density, exponent, context.gpu.clock_in_step_l2)


def gathered_power(density: npt.NDArray[np.float64], exponent: float, in_step_power: float) -> float:
    """Return the electric power per byte of L2 traffic for tiles with random column masks.

    It is relative to bytes that each block reads separately. Blocks of a tile with density d read the
    fraction d^e of their bytes at the same time as blocks of other tiles, where e is the exponent
    `out_of_step_power` of the launch costs. These bytes need only the power p = `in_step_power`. The mean
    over all bytes is

        1 - (1 - p) * sum(d_t^(1 + e)) / sum(d_t)

    with the density d_t of tile t, and 1 if no column is kept.

    Parameters
    ----------
    density : (tiles,) fraction of columns that each tile keeps
    exponent : launch cost `out_of_step_power`
    in_step_power : power of a byte that neighbouring blocks read at the same time, relative to other bytes
    """
    columns = float(density.sum())
    if columns == 0.0:
        return 1.0
    in_step = float(density @ density**exponent) / columns
    return 1.0 - (1.0 - in_step_power) * in_step

"""What the waits of a block depend on: its programs, and what the GPU's units cost it.

`SmRates` is what one SM does per cycle for a plan, the ceilings of its roofline.
"""

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from prunecast.hardware.spec import GpuSpec
from prunecast.launch import LaunchContext
from prunecast.models.prefetch import weights_before_b_bytes
from prunecast.plan.kernel_plan import BlockShape, KernelPlan
from prunecast.plan.misaligned import store_cost
from prunecast.plan.program import COPIES, Code, Op, WarpProgram, When
from prunecast.plan.tensor_rate import tensor_fma_per_clk, tensor_latency_cycles

L1_INTAKE_BYTES = 64.0
"""Bytes a cycle that the first level of cache takes in. From stage to stage of a first ring of the tile
kernel 32 KB take 447 to 541 cycles (clock stamps, H200, 2026-11-22). The rate of a `GpuSpec` was measured
with the 2:4 kernel, whose steps take as long as with it."""


class SmRates(NamedTuple):
    """Work of one SM per cycle, by level."""

    sub_partitions: int
    tensor_fma_per_clk: float
    """FMA per cycle of all tensor pipes together, for the instruction and dtype of the plan; 0 if it uses
    none."""
    fp32_cycles: float
    """Cycles that one fp32 multiply-add of a full warp keeps the pipe of its sub-partition."""
    shared_bytes_per_clk: float
    port_bytes_per_clk: float


def sm_rates(plan: KernelPlan, gpu: GpuSpec) -> SmRates:
    """Ceilings of an SM of `gpu` for the instructions of `plan`.

    Raises
    ------
    BadInput : the plan needs tensor instructions that the GPU does not have
    """
    fp32_lanes = gpu.fp32_fma_per_clk_per_sm / gpu.sub_partitions_per_sm
    return SmRates(
        sub_partitions=gpu.sub_partitions_per_sm,
        tensor_fma_per_clk=tensor_fma_per_clk(gpu, plan.dtype, plan.tensor) if plan.tensor != "none" else 0.0,
        fp32_cycles=max(1.0, 32.0 / fp32_lanes),
        shared_bytes_per_clk=float(gpu.shared_bytes_per_clk_per_sm),
        port_bytes_per_clk=float(gpu.l2_port_bytes_per_clk_per_sm),
    )


def _gather_bytes_per_clk(plan: KernelPlan, gpu: GpuSpec) -> float:
    """Bytes a cycle of an SM's gather port: the GPU's, or with dense wgmma what L1 takes in if that is more.

    Worth 0.2 points on block-sparse. The simulator keeps the GPU's rate, which stands there for what gathers
    of several warps cost one another too: with this one its stspmm is 0.3 points worse.
    """
    rate = float(gpu.gather_bytes_per_clk_per_sm)
    return max(rate, L1_INTAKE_BYTES) if plan.tensor == "wgmma" else rate


@lru_cache(maxsize=64)
def runs_ahead(programs: tuple[WarpProgram, ...]) -> bool:
    """Whether warps that only fetch go on to the next item while others still finish this one."""
    return any(program.fetches and not program.multiplies for program in programs)


@lru_cache(maxsize=64)
def copies_through_registers(programs: tuple[WarpProgram, ...]) -> bool:
    """Whether warps load the next step, tokens too, into registers and store it: one step ahead, no more."""
    return any(i.op is Op.LOAD_B and i.per_k16 and i.ahead == 1 for program in programs for i in program.step)


@lru_cache(maxsize=64)
def waits_for_parts(programs: tuple[WarpProgram, ...]) -> bool:
    """Whether owners of split tiles collect the sums themselves; else another launch adds them up."""
    return any(i.op is Op.WAIT_PARTS for program in programs for i in program.end)


class Chain(NamedTuple):
    """A block's programs and what the GPU's units cost it, in cycles."""

    programs: tuple[WarpProgram, ...]
    shape: BlockShape
    stages: int
    sub_partitions: int
    tensor_fma_per_clk: float
    """FMA per cycle of one sub-partition."""
    fp32_cycles: float
    shared_bytes_per_clk: float
    port_bytes_per_clk: float
    gather_bytes_per_clk: float
    store_bytes_per_clk: float
    """Bytes per cycle that an SM can hand to L2 while all others with a block do so too."""
    port_store_bytes_per_clk: float
    """Bytes per cycle that an SM can hand to L2 while others do not store: split-K slices end when they
    end."""
    tokens_share: float
    """Share of a block's tokens that exist."""
    store_share: float
    """Mean size of an item's tile of C over a full one."""
    tensor_latency: int
    shared_latency: int
    barrier_latency: int
    sync_latency: int
    perform_latency: int
    """Cycles from a part's last store until it may signal."""
    memory_latency: int
    """Cycles from the issue of a read to its use; 0 with endless ports for data that are there already."""
    gather_latency: int
    """Least cycles from a gather's turn to its use; loads come back behind gathers."""
    lacks_tokens: bool
    """Whether the item has fewer tokens than a block takes."""
    first_weights_late: float = 0.0
    """Cycles by which weights come late that all blocks ask for at once before they read B."""
    b_latency: float = float("inf")
    """Latency of reads of B into registers, at most, where B lies in L2."""

    @classmethod
    def of(cls, context: LaunchContext, rates: SmRates, memory_latency_cycles: float) -> "Chain":
        """What the walk needs; the latency is rounded to whole cycles, so that walks are found again."""
        plan, gpu = context.plan, context.gpu
        return cls(
            programs=context.programs,
            shape=plan.shape,
            stages=plan.resources.stages,
            sub_partitions=rates.sub_partitions,
            tensor_fma_per_clk=rates.tensor_fma_per_clk / rates.sub_partitions,
            fp32_cycles=rates.fp32_cycles,
            shared_bytes_per_clk=rates.shared_bytes_per_clk,
            port_bytes_per_clk=rates.port_bytes_per_clk,
            gather_bytes_per_clk=_gather_bytes_per_clk(plan, gpu),
            store_bytes_per_clk=_store_rate(context),
            port_store_bytes_per_clk=float(gpu.store_bytes_per_clk_per_sm),
            tokens_share=min(plan.n / plan.shape.block_n, 1.0),
            store_share=_store_share(plan),
            tensor_latency=tensor_latency_cycles(gpu, plan.tensor),
            shared_latency=gpu.shared_latency_cycles,
            barrier_latency=gpu.barrier_latency_cycles,
            sync_latency=gpu.sync_latency_cycles,
            perform_latency=gpu.store_latency_cycles if waits_for_parts(context.programs) else 0,
            memory_latency=round(memory_latency_cycles),
            gather_latency=gpu.gather_latency_cycles,
            lacks_tokens=False,
            first_weights_late=weights_before_b_bytes(context) * gpu.max_clock_hz / gpu.dram_bytes_per_s,
            b_latency=float(gpu.l2_latency_cycles) if context.b_in_l2 else float("inf"),
        )

    def with_data_there(self) -> "Chain":
        """The block with memory that answers at once."""
        endless = float("inf")
        return self._replace(
            memory_latency=0,
            gather_latency=0,
            port_bytes_per_clk=endless,
            gather_bytes_per_clk=endless,
        )

    def where_tokens_lack(self) -> "Chain":
        """The block with an item of fewer tokens; the bytes it moves stay those of a full one."""
        return self._replace(lacks_tokens=True) if _has_edges(self.programs) else self

    def of_first_ring(self) -> "Chain":
        """The block as if all its steps were of its first ring."""
        return self._replace(programs=_of_first_ring(self.programs))

    def begun_early(self) -> "Chain":
        """The block as if it had started before the walk begins, with all that it waits for before B already
        there.
        """
        return self._replace(programs=_begun_programs(self.programs))

    def of_lone_warps(self) -> "Chain":
        """The block as if each role had one warp, with nobody in its way."""
        return self._replace(programs=tuple(replace(program, warps=1) for program in self.programs))

    def asking_no_more(self) -> "Chain":
        """The block in its last steps: instructions that act on a step that does not exist are skipped."""
        return self._replace(programs=_asking_no_more(self.programs))

    def with_short_steps(self) -> "Chain":
        """The block with k-steps of 16 columns, and a ring of as many columns."""
        stages = self.stages * -(-self.shape.block_k // 16)
        return self._replace(shape=self.shape._replace(block_k=16), stages=stages)


@lru_cache(maxsize=64)
def _has_edges(programs: tuple[WarpProgram, ...]) -> bool:
    """Whether warps do something else in items with fewer tokens than a block takes."""
    parts = ("start", "begin", "fill", "step", "end", "finish")
    return any(i.when is When.EDGE for program in programs for part in parts for i in getattr(program, part))


@lru_cache(maxsize=256)
def _begun_programs(programs: tuple[WarpProgram, ...]) -> tuple[WarpProgram, ...]:
    return tuple(replace(program, start=(), begin=_begun(program.begin)) for program in programs)


def _begun(begin: Code) -> Code:
    first_of_b = next((at for at, i in enumerate(begin) if i.op in (*COPIES, Op.LOAD_B)), len(begin))
    early = tuple(i for i in begin[:first_of_b] if i.op not in (Op.ISSUE, Op.WAIT_LOAD))
    return (*early, *begin[first_of_b:])


@lru_cache(maxsize=256)
def _of_first_ring(programs: tuple[WarpProgram, ...]) -> tuple[WarpProgram, ...]:
    """Programs without what only later rings do."""
    return tuple(replace(p, step=tuple(i for i in p.step if i.when is not When.REFILL)) for p in programs)


@lru_cache(maxsize=256)
def _asking_no_more(programs: tuple[WarpProgram, ...]) -> tuple[WarpProgram, ...]:
    """Programs without what acts on later steps."""
    return tuple(
        replace(p, step=tuple(i for i in p.step if not i.ahead or not i.of_a_step)) for p in programs
    )


def _store_rate(context: LaunchContext) -> float:
    gpu = context.gpu
    busy_sms = max(min(context.plan.blocks, gpu.sm_count), 1)
    share_of_l2 = gpu.l2_store_bytes_per_s / gpu.max_clock_hz / busy_sms
    # Blocks drift apart: what L2 takes longer for one wave's stores lies under the work of the other waves,
    # and half of a single wave's stores come together (fitted to twelve products with padded rows, 0007)
    waves = max(context.plan.item_count / busy_sms, 1.0)
    longer = 1.0 + (store_cost(context.programs).lines - 1.0) / (waves + 1.0)
    return min(gpu.store_bytes_per_clk_per_sm, share_of_l2 / longer)


def _store_share(plan: KernelPlan) -> float:
    """Rounded, so that walks are found again."""
    work, shape = plan.work, plan.shape
    if not plan.item_count:
        return 1.0
    rows = plan.tiles.rows_per_tile[work.tile].astype(np.float64)
    area = float(np.mean(rows * (work.token_stop - work.token_start)))
    return round(area / (shape.block_m * shape.block_n), 2)

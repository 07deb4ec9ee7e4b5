"""Warp programs move and multiply exactly what a k-step and an item consist of."""

import os
import pickle
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from prunecast.errors import BadInput
from prunecast.hardware.costs import load_costs
from prunecast.kernels.libraries.cublas.configs import library_kernels
from prunecast.kernels.libraries.cusparse.programs import csr_programs, cusparse_costs
from prunecast.kernels.small_n.configs import SmallConfig, small_configs
from prunecast.kernels.small_n.kernel import _plan_small_n
from prunecast.kernels.small_n.programs import COLUMN_BYTES, small_programs, with_early_blocks
from prunecast.kernels.tile import item_cost
from prunecast.kernels.tile.config import TileConfig
from prunecast.kernels.tile.configs import sparse_configs, tile_configs
from prunecast.kernels.tile.programs.epilogue import sparse_end_of_item
from prunecast.kernels.tile.programs.warp_programs import warp_programs
from prunecast.plan.program import Charge, Instruction, Op, WarpProgram, When, bind
from tests.kernels.layouts import tiles_keeping
from tests.toy_gpu import toy_gpu

CAPABILITIES = (70, 75, 80, 86, 89, 90, 100, 120)
COPY_OPS = (Op.COPY_A, Op.COPY_B, Op.GATHER_B, Op.LOAD_A, Op.LOAD_B)


def all_configs() -> list[TileConfig]:
    found = []
    for capability in CAPABILITIES:
        gpu = toy_gpu(compute_capability=capability)
        for dtype in ("fp16", "tf32") if capability >= 80 else ("fp16",):
            found += [
                *tile_configs(gpu, dtype, 999),
                *(kernel.config for kernel in library_kernels(gpu, dtype)[::12]),
            ]
            found += sparse_configs(gpu, dtype, 999) if capability >= 80 else []
    return found


CONFIGS = all_configs()
COSTS = load_costs("prunecast.kernels.tile", 90)
B_ACCESSES = ("gather", "dense_tile")
CASES = [(v, order) for v in CONFIGS for order in B_ACCESSES if v.pair == 1 or order == "dense_tile"]


def bound_programs(v: TileConfig, order: str, **options: Any) -> tuple[WarpProgram, ...]:
    return bind(warp_programs(v, order, **options), COSTS, toy_gpu())


def total(programs: tuple[WarpProgram, ...], part: str, ops: tuple[Op, ...], columns: int) -> int:
    """Amount of `ops` over all warps of the block in one pass through `part`, for a step of `columns`."""
    return sum(
        amount_of(ins, columns) * (1 if ins.leader or ins.op in (Op.GATHER_B, Op.LOAD_B) else program.warps)
        for program in programs
        for ins in getattr(program, part)
        if ins.op in ops
    )


def amount_of(ins: Instruction, columns: int) -> int:
    if ins.op in (Op.GATHER_B, Op.LOAD_B, Op.COPY_B):
        return ins.amount * columns  # all warps of the role together
    return ins.amount * (columns // 16 if ins.per_k16 else 1)


@pytest.mark.parametrize("columns", [16, 32])
def test_a_step_copies_its_weights_and_tokens_once(columns):
    for v, order in CASES:
        if columns > v.shape.block_k:
            continue
        step = v.share_bytes_per_k16 * columns // 16
        if v.tensor_path == "wgmma" and order == "gather":
            # Its weights come in whole stages
            step += v.weight_bytes_per_k16 * (v.shape.block_k - columns) // 16
        assert total(bound_programs(v, order), "step", COPY_OPS, columns) == step


def test_the_fill_copies_what_a_step_copies():
    for v, order in CASES:
        programs = bound_programs(v, order)
        fill = total(programs, "fill", COPY_OPS, 16)
        assert fill == (0 if v.tensor_path == "wgmma" else total(programs, "step", COPY_OPS, 16))


def test_copies_through_registers_store_in_shared_memory_what_they_loaded():
    cases = [(v, order) for v, order in CASES if v.tensor_path == "registers"]
    assert cases
    for v, order in cases:
        programs = bound_programs(v, order)
        loaded = total(programs, "fill", COPY_OPS, 16)
        assert total(programs, "fill", (Op.SHARED,), 16) == loaded
        (stored_ahead,) = (ins for ins in programs[0].step if ins.op is Op.SHARED and ins.ahead == 1)
        assert stored_ahead.amount * programs[0].warps == loaded


@pytest.mark.parametrize("columns", [16, 32, 64])
def test_a_step_multiplies_the_whole_tile_and_only_kept_weights(columns):
    cases = [(v, order) for v, order in CASES if columns <= v.shape.block_k]
    assert cases
    for v, order in cases:
        fma = v.shape.block_m * v.shape.block_n * columns // (2 if v.is_sparse else 1)
        assert total(bound_programs(v, order), "step", (Op.MMA, Op.BLOCKING_MMA), columns) == fma


def test_cycles_that_are_fitted_per_16_columns_are_charged_for_each_of_them():
    charged: dict[tuple[str, str], set[float]] = {}
    for v, order in CASES:
        for program in warp_programs(v, order):
            for ins in program.step:
                for charge in ins.charges:
                    each = 1.0 if ins.per_k16 else 16 / v.shape.block_k
                    charged.setdefault((charge.name, program.role), set()).add(charge.times * each)
    of_16_columns = {name: times for (name, _), times in charged.items() if name.endswith("per_k16")}
    assert {*of_16_columns} >= {"refill_wait_per_k16", "edge_wait_per_k16", "wait_per_k16"}
    # Waits of complete token ranges are subtracted where a range is incomplete
    assert all(times <= {1.0, -1.0} for times in of_16_columns.values())


@pytest.mark.parametrize("block_n", [64, 128, 256])
def test_producers_need_as_long_for_a_k_step_with_few_columns(block_n):
    """`tile_gather.cuh` copies zeros for columns that the step lacks."""
    cases = [(v, order) for v, order in CASES if v.tensor_path == "wgmma" and order == "gather"]
    cases = [(v, order) for v, order in cases if v.shape.block_n == block_n]
    assert cases
    for v, order in cases:
        producer = bound_programs(v, order)[0]
        assert producer.role == "producer"
        every = [ins for ins in producer.step if ins.op is Op.ISSUE]
        busy = {
            columns: sum((i.amount + i.issue) * (columns // 16 if i.per_k16 else 1) for i in every)
            for columns in range(16, v.shape.block_k + 1, 16)
        }
        assert len({*busy.values()}) == 1
        assert busy[16] >= v.shape.block_k // 16 * 4


def test_an_item_writes_its_tile_or_its_sums_once():
    for v, order in CASES:
        programs = bound_programs(v, order)
        elements = v.shape.block_m * v.shape.block_n
        assert total(programs, "end", (Op.STORE_C,), 16) == elements * v.element_bytes
        assert total(programs, "end", (Op.STORE_PARTIAL,), 16) == elements * 4
        assert total(programs, "end", (Op.LOAD_PARTIALS,), 16) == elements * 4


def test_the_warps_add_up_to_the_block():
    for v, order in CASES:
        assert 32 * sum(p.warps for p in bound_programs(v, order)) == v.resources.threads


def test_only_gathering_kernels_load_indices():
    for v, order in CASES:
        loads = [
            ins for p in bound_programs(v, order) for ins in (*p.begin, *p.step) if ins.op is Op.LOAD_INDEX
        ]
        assert bool(loads) == (order == "gather")


@pytest.mark.parametrize("columns", [16, 32])
def test_a_step_that_gathers_loads_four_bytes_of_index_for_each_column(columns):
    for v, order in CASES:
        loaded = total(bound_programs(v, order), "step", (Op.LOAD_INDEX,), columns)
        assert loaded == (4 * columns if order == "gather" else 0)


def test_fitted_waits_are_in_addition_to_the_instructions():
    """An instruction more is an issue slot more: no fitted number subtracts it again."""
    for v, order in CASES:
        for program in warp_programs(v, order):
            for ins in (*program.start, *program.begin, *program.step, *program.end):
                taken_off = [charge.name for charge in ins.charges if charge.times < 0]
                assert ins.amount >= 0
                assert all(COSTS.entries[name].unit == "cycle" for name in taken_off)


def test_waits_of_partial_token_ranges_replace_those_of_complete_ones():
    """In a stage that is refilled the cycles of a partial range do not depend on waits of complete ones."""
    programs = [warp_programs(v, order) for v, order in CASES if v.tensor_path == "wgmma"]
    producers = [each[0] for each in programs if any(i.when is When.EDGE for i in each[0].step)]
    assert len({each.step for each in producers}) > 1
    for producer in producers:
        cycles = [
            sum(
                charge.times * (wait if "wait_per_k16" in charge.name else 1.0)
                for i in producer.step
                if i.op is Op.ISSUE
                for charge in i.charges
                if charge.name != "edge_wait_per_k16"
            )
            for wait in (0.0, 1000.0)
        ]
        assert cycles[0] == pytest.approx(cycles[1])


def test_planners_read_charges_of_programs_and_no_instructions():
    """Work lists of recorded plans stay when a program issues other instructions."""
    read = [v for v in vars(item_cost).values() if "tile.programs" in getattr(v, "__module__", "")]
    others = {found.__name__ for found in read if found.__annotations__["return"] != tuple[Charge, ...]}
    assert len(read) == 6
    assert others == {"copies"}


def test_tensor_cores_limit_the_tiles_whose_products_need_as_long_as_their_bytes():
    for v in tile_configs(toy_gpu(compute_capability=90), "fp16", 999):
        port = (v.share_bytes_per_k16 + v.operand_bytes_per_warp_per_k16 * v.consumer_warps) / 128
        products = v.fma_per_warp_per_k16 * v.consumer_warps / 2048
        assert products / port > 0.98 if v.tensor_limited else products / port < 0.95


def test_warps_that_gather_and_multiply_walk_their_lists_in_each_step():
    """SASS for sm_80, 128 x 256: 94 instructions besides products, reads and copies; 122 with 2:4."""
    issues = {}
    for v, order in CASES:
        if v.tensor_path != "mma":
            continue
        plain = [ins for ins in bound_programs(v, order)[0].step if ins.op is Op.ISSUE and not ins.per_k16]
        assert len(plain) == (order == "gather")
        if plain:
            issues[v.tensor, v.shape] = plain[0].issue
    assert issues["mma", (128, 256, 32)] == 90
    assert issues["sparse-mma", (128, 256, 64)] == 115


def test_every_instruction_issues_at_least_once():
    for v, order in CASES:
        for program in bound_programs(v, order):
            for code in (program.start, program.begin, program.fill, program.step, program.end):
                assert all(ins.issue >= 1 and ins.amount >= 0 for ins in code)


def test_a_slot_is_released_once_per_consumer_warp_and_step():
    """In steps for the step before, at the end for the last one: s releases for s steps."""
    for v, order in CASES:
        for program in bound_programs(v, order):
            in_step = [ins.amount for ins in program.step if ins.op is Op.RELEASE]
            at_end = [ins.amount for ins in program.end if ins.op is Op.RELEASE]
            expected = ([1], [0]) if program.role == "consumer" else ([], [])
            assert (in_step, at_end) == expected


def test_who_waits_for_parts_owns_them_and_who_hands_over_does_not_write():
    for v, order in CASES:
        for program in bound_programs(v, order):
            when = {ins.op: ins.when for ins in program.end}
            if program.role != "producer":
                assert when[Op.STORE_PARTIAL] is When.PARTIAL
                assert when[Op.WAIT_PARTS] is when[Op.LOAD_PARTIALS] is When.OWNER
                assert when[Op.STORE_C] is When.FINAL


def stores_of(programs: tuple[WarpProgram, ...]) -> list[Instruction]:
    return [ins for p in programs for ins in p.end if ins.op is Op.STORE_C]


def test_c_leaves_by_way_of_the_staging_buffer_and_the_last_of_it_behind_the_next_item():
    """128 x 256 fp16: 8 KB a warp, staged in 4 KB; 128 x 192 in thirds."""
    configs = {
        v.shape[:2]: v
        for v in tile_configs(toy_gpu(compute_capability=90), "fp16", 128)
        if v.tensor == "wgmma"
    }
    for form, sizes in (((128, 256), [4096, 4096]), ((128, 192), [2048] * 3)):
        stores = stores_of(bound_programs(configs[form], "gather"))
        assert [ins.amount for ins in stores] == sizes
        assert [ins.posted for ins in stores] == [False] * (len(sizes) - 1) + [True]


def test_only_tiles_that_end_in_two_halves_queue_their_stores_with_the_gathers():
    for v, order in CASES:
        tall = v.tensor == "sparse-wgmma" and order == "gather" and v.shape.block_m == 256
        assert {ins.queued for ins in stores_of(bound_programs(v, order))} == {tall}


def test_warps_store_scattered_rows_themselves_and_wait():
    for v, order in CASES:
        if v.tensor_path == "wgmma" and order == "gather" and not v.is_sparse:
            together = stores_of(bound_programs(v, order))
            scattered = stores_of(bound_programs(v, order, scattered=True))
            assert sum(ins.amount for ins in scattered) == sum(ins.amount for ins in together)
            assert not any(ins.posted for ins in scattered)
            # A lane stores 16 bytes at a time
            assert all(ins.issue == -(-ins.amount // 512) for ins in scattered)


def test_blocks_of_a_list_read_their_next_item_before_they_multiply():
    v = next(v for v in CONFIGS if v.tensor_path == "wgmma" and v.pair == 1)
    for in_memory, waits in ((False, 1), (True, 0)):
        consumer = bound_programs(v, "gather", item_in_memory=in_memory)[1]
        assert sum(ins.op is Op.WAIT_LOAD for ins in consumer.begin) == waits


@pytest.mark.parametrize("choose", [tile_configs, sparse_configs])
def test_rounds_of_copies_that_are_asked_for_wait_for_the_port(choose):
    """Of equally wide forms the taller one, whose port has more to do; of 64 tokens next to nothing."""
    found = choose(toy_gpu(compute_capability=90), "fp16", 999)
    more = {}
    for v in found:
        cycles = sum(i.amount for i in bound_programs(v, "gather")[0].step if i.when is When.EDGE)
        more[v.shape[:2]] = 16 * cycles / v.shape.block_k
    assert 0 < more[128, 64] < 20 < more[128, 128] < more[128, 256]
    taller = more.pop((256, 128))
    assert taller == 0 if choose is tile_configs else taller > more[128, 128]


def test_clusters_share_token_boxes():
    v = library_kernels(toy_gpu(), "fp16")[0].config
    boxes = [
        ins for p in bound_programs(v, "dense_tile", multicast=2) for ins in p.step if ins.op is Op.COPY_B
    ]
    assert [(ins.multicast, ins.leader) for ins in boxes] == [(2, True)]


def test_clusters_that_gather_share_the_weights_and_not_the_rows():
    v = tile_configs(toy_gpu(compute_capability=90), "fp16", 256)[0]
    step = [ins for p in bound_programs(v, "gather", multicast=2) for ins in p.step]
    assert [ins.multicast for ins in step if ins.op is Op.COPY_A] == [2]
    assert [ins.multicast for ins in step if ins.op is Op.GATHER_B] == [1]


@pytest.mark.parametrize(
    ("capability", "order", "multicast", "message"),
    [
        (90, "spiral", 1, "B access must be one of gather, dense_tile, got 'spiral'"),
        (80, "gather", 2, "multicast 2 needs a wgmma kernel, got mma gather"),
        (80, "dense_tile", 2, "multicast 2 needs a wgmma kernel, got mma dense_tile"),
    ],
)
def test_what_no_kernel_does_is_refused(capability, order, multicast, message):
    v = tile_configs(toy_gpu(compute_capability=capability), "fp16", 128)[0]
    with pytest.raises(BadInput, match=message):
        bound_programs(v, order, multicast=multicast)


@pytest.mark.parametrize("block_n", [32, 64, 128])
@pytest.mark.parametrize("element_bytes", [2, 4])
def test_the_csr_kernel_multiplies_every_token_once(block_n, element_bytes):
    slots = cusparse_costs(90)[f"slots_per_element_{block_n}"]
    programs = csr_programs(block_n, element_bytes, 16.0, slots, 0.0, cusparse_costs(90))
    (warps,) = (p.warps for p in programs)
    fma = sum(ins.issue * p.warps for p in programs for ins in p.step if ins.op is Op.FMA)
    assert fma * 32 == 16 * block_n
    assert total(programs, "step", (Op.LOAD_B,), 16) == 16 * block_n * element_bytes
    assert total(programs, "step", (Op.LOAD_INDEX,), 16) == 16 * (4 + element_bytes)
    assert total(programs, "end", (Op.STORE_C,), 16) == block_n * element_bytes
    # 16 elements for each of 16 warps, who share them: the slots of one element
    assert sum(ins.issue for p in programs for ins in p.step) * warps == 16 * slots


SMALL = [(form, n) for n in (1, 2, 5, 8, 16, 17, 24, 33, 64) for form in small_configs(n)]
"""Configs of small-n, whose warps each have a k16 (16 kept columns) of a step, and numbers of tokens."""


def small_program(form: SmallConfig, n: int, kept: int = 4096) -> WarpProgram:
    (worker,) = small_programs(form, n, "fp16", most_kept=kept)
    return worker


def test_a_step_of_small_n_copies_its_weights_with_their_columns_and_multiplies_them_once():
    for form, n in SMALL:
        programs = (small_program(form, n),)
        assert programs[0].warps == form.warps
        weights = 16 * (form.block_m * 2 + COLUMN_BYTES)
        assert total(programs, "step", (Op.LOAD_A,), 16) == weights
        assert total(programs, "step", (Op.MMA,), 16) == form.block_m * form.block_n * 16


def test_small_n_fills_its_ring_with_copies_of_its_steps():
    """A warp fills `depth` slots, or as many as it has k16s of the tile."""
    for form, n in SMALL:
        for kept in (16, 16 * form.warps * (form.depth - 1), 4096):
            worker = small_program(form, n, kept)
            slots = min(form.depth, max(kept // 16 // form.warps, 1))
            for op in (Op.LOAD_A, Op.LOAD_B):
                first = [(i.ahead, i.amount) for i in worker.begin if i.op is op]
                (later,) = (i for i in worker.step if i.op is op)
                assert sorted(first) == [(slot, later.amount) for slot in range(slots)]
                assert later.ahead == form.depth


def test_a_k16_of_small_n_issues_the_instructions_of_its_compiled_loop():
    """One warp has a k16; the mean over the warps is rounded once for copies and once for products."""
    for form, n in SMALL:
        issued = sum(i.issue for i in small_program(form, n).step if i.op is Op.ISSUE)
        assert abs(issued * form.warps - form.k16_instructions(n)) <= form.warps


def test_small_n_adds_the_sums_of_all_warps_and_writes_its_tile_once():
    """Each warp puts its sums into shared memory; they are read once, with half of the banks at a time."""
    for form, n in SMALL:
        programs, sums = (small_program(form, n),), form.block_m * form.block_n * 4
        assert total(programs, "end", (Op.STORE_C,), 16) == form.block_m * form.block_n * 2
        assert total(programs, "end", (Op.SHARED,), 16) == (1 + 2) * form.warps * sums
        assert [i.op for i in programs[0].end][:3] == [Op.WAIT_MMA, Op.SHARED, Op.SYNC]


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 1.0])
def test_early_blocks_of_small_n_request_the_same_bytes_and_wait_for_no_weights(share):
    for form, n in SMALL[::7]:
        plan = _plan_small_n(tiles_keeping([4096], height=64, k=4096), n, "fp16", toy_gpu(), config=form)
        (launched,), (early,) = plan.programs, with_early_blocks(plan, form, share)
        for op in (Op.LOAD_A, Op.LOAD_B):
            whole, found = ([i for i in p.begin if i.op is op] for p in (launched, early))
            assert sum(i.amount for i in found) == sum(i.amount for i in whole)
            posted = sum(i.amount for i in found if i.posted)
            wanted = share * sum(i.amount for i in whole) if op is Op.LOAD_A else 0
            assert posted == pytest.approx(wanted, abs=0.5 * form.depth), "bytes of each k16 are rounded"
        assert (early.step, early.end) == (launched.step, launched.end)
        assert bool(early.start) == (share < 1.0)


PRINT_WHETHER_FOUND = """
import pickle, sys
from prunecast.plan.program import Charge, Instruction, Op, WarpProgram
read = pickle.loads(bytes.fromhex(sys.argv[1]))
made = WarpProgram(role="consumer", warps=4, step=(Instruction(Op.MMA, 16),))
print(read == made, read in {made: 1})
"""


def test_a_program_from_another_process_is_found_among_those_made_here() -> None:
    """Hashes of texts differ from process to process, and a program knows its own."""
    program = WarpProgram(role="consumer", warps=4, step=(Instruction(Op.MMA, 16),))
    assert hash(program) == hash(replace(program))
    assert hash(program) != hash(replace(program, warps=8))
    for seed in ("1", "2"):
        found = subprocess.run(
            [sys.executable, "-c", PRINT_WHETHER_FOUND, pickle.dumps(program).hex()],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert found.stdout.split() == ["True", "True"]


def test_cuda_cores_multiply_every_column_of_a_step():
    """A warp's FMA instruction multiplies 32 pairs; 16 columns need a part of C 16 times."""
    cores = tile_configs(toy_gpu(compute_capability=70), "fp32", 999)
    assert {v.tensor for v in cores} == {"none"}
    for v in cores:
        products = [i for p in warp_programs(v, "gather") for i in p.step if i.op is Op.FMA]
        assert [(i.per_k16, 32 * i.issue) for i in products] == [(True, 16 * v.part_m * v.part_n)]


def test_owners_of_two_of_four_tiles_read_who_has_arrived_before_they_add():
    for v in sparse_configs(toy_gpu(compute_capability=90), "fp16", 999):
        owners = [i.op for i in sparse_end_of_item(v) if i.when == When.OWNER]
        assert owners[:4] == [Op.WAIT_PARTS, Op.LOAD_INDEX, Op.WAIT_LOAD, Op.LOAD_PARTIALS]

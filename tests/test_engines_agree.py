"""The simulator and the closed-form model see the same plan: laws that tie them together."""

import csv
from pathlib import Path

import numpy as np
import pytest

from benchmarks.agreement import SINGLE, drawn, pairs, timed
from prunecast.choice import fastest_plan
from prunecast.hardware import GpuSpec, load_gpu
from prunecast.kernels import KernelPlan, Schedule
from prunecast.models import bound_cycles, estimate
from prunecast.patterns import TileMap, element_map_from_mask
from prunecast.simulator import ATTRIBUTION, PIPES, STALLS, simulate
from prunecast.workload.engines import simulate as simulate_as_commands
from tests.kernels.layouts import NEED_AMPERE, PLANNED, example_plan, tiles_keeping

GPUS = ("h200-sxm", "a100-sxm4-80gb", "t4", "v100-sxm2-16gb", "rtx-4090", "b200")
M, K, N = 640, 512, 1000


def plan_for(kernel: str, gpu: GpuSpec) -> KernelPlan:
    """A small plan of the kernel, uneven where the kernel allows it."""
    return example_plan(kernel, M, K, N, gpu)


def cases() -> list[tuple[str, str]]:
    """Every kernel on every GPU that can run it."""
    pairs = [(kernel, gpu) for kernel in PLANNED for gpu in GPUS]
    return [
        (kernel, gpu)
        for kernel, gpu in pairs
        if kernel not in NEED_AMPERE or load_gpu(gpu).sparse_tensor_factor > 0
    ]


@pytest.mark.parametrize(("kernel", "gpu_name"), cases())
def test_no_simulated_time_lies_below_a_bound(kernel: str, gpu_name: str) -> None:
    gpu = load_gpu(gpu_name)
    plan = plan_for(kernel, gpu)
    result = simulate(plan, gpu)
    # The run was made at a clock within 2 % of the one reported; a bound in bytes per second follows it.
    for level, cycles in bound_cycles(plan, gpu, result.clock_hz).items():
        slack = 1.02 if level in ("l2", "dram") else 1.0
        assert result.cycles * slack >= cycles, level


@pytest.mark.parametrize(("kernel", "gpu_name"), cases())
def test_a_result_is_consistent_in_itself(kernel: str, gpu_name: str) -> None:
    gpu = load_gpu(gpu_name)
    plan = plan_for(kernel, gpu)
    result = simulate(plan, gpu)
    assert list(result.attribution_s) == list(ATTRIBUTION)
    assert sum(result.attribution_s.values()) == pytest.approx(result.seconds, rel=1e-12)
    assert min(result.attribution_s.values()) >= 0.0
    assert list(result.stalls) == list(STALLS)
    assert sum(result.stalls.values()) == pytest.approx(1.0, abs=1e-12)
    assert list(result.utilisation) == list(PIPES)
    assert max(result.utilisation.values()) <= 1.0
    # A warp instruction takes one issue slot of one sub-partition
    slots = result.cycles * gpu.sm_count * gpu.sub_partitions_per_sm
    assert result.utilisation["issue"] * slots == pytest.approx(result.warp_instructions)
    assert result.sm_items.sum() == plan.item_count
    assert np.all(result.sm_busy_cycles <= result.cycles)
    assert np.all(result.sm_tensor_cycles <= result.cycles)


@pytest.mark.parametrize("state", ["burst", "sustained"])
@pytest.mark.parametrize("kernel", PLANNED)
def test_the_first_clock_of_a_simulation_changes_it_by_a_few_percent(kernel: str, state: str) -> None:
    """Clocks agree within 2 %, and so do the DRAM writes, with which either simulation ends."""
    gpu = load_gpu("h200-sxm")
    plan = plan_for(kernel, gpu)
    plain, guided = simulate(plan, gpu, state=state), simulate_as_commands(plan, gpu, state=state)
    assert guided.seconds == pytest.approx(plain.seconds, rel=0.04)


@pytest.mark.parametrize("kernel", PLANNED)
def test_both_engines_are_of_one_mind(kernel: str) -> None:
    """Within a factor of two: they share amounts and differ in what overlaps."""
    gpu = load_gpu("h200-sxm")
    plan = plan_for(kernel, gpu)
    ratio = estimate(plan, gpu).seconds / simulate(plan, gpu).seconds
    assert 0.5 < ratio < 2.0


@pytest.mark.parametrize("assignment", ["longest-first", "stream-k"])
def test_stspmm_runs_under_every_assignment(assignment: str) -> None:
    gpu = load_gpu("h200-sxm")
    kept = np.rint(np.linspace(0.0, 0.5, 16) * 2048).astype(int)
    tiles = tiles_keeping(kept.tolist(), height=128, k=2048)
    plan = fastest_plan("stspmm", tiles, 4096, "fp16", gpu, assignment=assignment)
    assert plan.schedule is Schedule.STATIC
    result = simulate(plan, gpu)
    assert result.sm_items.sum() == plan.item_count
    assert estimate(plan, gpu).seconds == pytest.approx(result.seconds, rel=0.3)


def test_balance_beats_one_long_tile() -> None:
    """The point of STSpMM: with one full tile among light ones, splitting saves most of what can be saved."""
    gpu = load_gpu("h200-sxm")
    kept = np.full(32, 100)
    kept[0] = 4096
    rng = np.random.default_rng(0)
    tiles = TileMap(
        m=4096,
        k=4096,
        row_start=np.arange(33) * 128,
        row_index=np.arange(4096),
        column_start=np.concatenate(([0], np.cumsum(kept))),
        column_index=np.concatenate([np.sort(rng.choice(4096, count, replace=False)) for count in kept]),
        pattern="tile-wise:128",
    )
    whole = simulate(fastest_plan("tile-wise", tiles, 2048, "fp16", gpu), gpu)
    split = simulate(fastest_plan("stspmm", tiles, 2048, "fp16", gpu), gpu)
    # Reading B and writing C take 8 of the 18 us that are left: no schedule can shorten those.
    assert split.seconds < 0.65 * whole.seconds
    assert split.attribution_s["split fix-up"] > 0.0 or split.attribution_s["imbalance"] < whole.seconds / 10


def test_the_same_input_gives_the_same_bytes() -> None:
    gpu = load_gpu("a100-sxm4-80gb")
    first, second = (simulate(plan_for("stspmm", gpu), gpu) for _ in range(2))
    assert (first.seconds, first.cycles, first.stalls) == (second.seconds, second.cycles, second.stalls)
    assert np.array_equal(first.sm_busy_cycles, second.sm_busy_cycles)


def test_engines_are_near_each_other_on_maps_drawn_at_random() -> None:
    """A small draw of `python -m benchmarks.agreement`, on six GPUs and all kernels that they have.

    Cases beyond 10 % are sorted by their causes in docs/decisions/0028-engines-agree.md.
    """
    gpus = ("h200-sxm", "a100-sxm4-40gb", "rtx-4090", "v100-sxm2-16gb", "t4", "gtx-1080-ti")
    cases = [drawn(g, k, seed) for g in gpus for k in SINGLE for seed in (0, 1)]
    found = [pair for case in cases if (pair := timed(case)) is not None]
    assert len(found) > 60
    assert np.mean([pair.within(0.10) for pair in found]) >= 0.9
    assert all(pair.within(0.25) for pair in found)
    on_h200 = [pair for pair in found if pair.case.gpu == "h200-sxm"]
    assert np.mean([pair.within(0.10) for pair in on_h200]) >= 0.95


def test_processes_share_a_draw_and_no_case_begins_too_late() -> None:
    cases = [drawn(gpu, "small-n", seed) for seed in (0, 1) for gpu in ("a100-sxm4-40gb", "gtx-1080-ti")]
    found = pairs(cases, processes=2)
    assert found == [pair for case in cases if (pair := timed(case)) is not None]
    assert [pair.case for pair in found] == [case for case in cases if case.gpu != "gtx-1080-ti"]
    assert pairs(cases, processes=2, seconds=0.0) == []


MENDED = (
    ("v100-sxm2-16gb", "block-sparse", 102),  # copies through registers wait for DRAM in step
    ("v100-sxm2-16gb", "block-sparse", 101),  # L2 serves reads or stores
    ("rtx-4090", "block-sparse", 102),  # stores of later waves do not coincide
    ("gtx-1080-ti", "csr", 101),  # rows that L2 holds by chance
    ("gtx-1080-ti", "csr", 5004),  # token ranges that a wave does not read
    ("t4", "dense", 5009),  # tiles with the same columns read B in step
    ("t4", "tile-wise", 5017),
    ("gtx-1080-ti", "stspmm", 9022),  # owners wait for k-slices on SMs with several blocks
    ("t4", "block-sparse", 9015),  # tiles that keep most rows of B read them in step
    ("a100-sxm4-40gb", "block-sparse", 5023),  # the slower tile finds rows in L2 and catches up
    ("rtx-4090", "dense", 9003),  # the last stores of SMs that DRAM serves in turn do not coincide
    ("rtx-4090", "small-n", 9014),  # rows of B are requested after the weights of all blocks
    ("rtx-4090", "tile-wise", 12001),  # tiles with few columns read their rows early
    ("rtx-4090", "stspmm", 12019),  # so do k-slices of such tiles
    ("rtx-4090", "small-n", 12011),  # blocks of later waves request all their weights at once
    ("v100-sxm2-16gb", "balanced", 12009),  # only weights before rows of B are requested at once
    ("t4", "dense", 13015),  # waits for DRAM that k-steps contain count once
    ("gtx-1080-ti", "csr", 12015),  # warps that do not wait hide the queue of DRAM
    ("gtx-1080-ti", "dense", 16023),  # the blocks of an SM end together: some SMs get three of the last wave
    ("gtx-1080-ti", "dense", 17014),  # and all SMs store at once in every wave
    ("gtx-1080-ti", "tile-wise", 17024),  # blocks with more k-steps store later
    ("v100-sxm2-16gb", "block-sparse", 16017),
    ("v100-sxm2-16gb", "dense", 17003),  # the slower SMs, with two blocks, find all data in L2
    ("t4", "dense", 16006),
    ("t4", "stspmm", 17011),  # weights of later waves come from DRAM, and each k-step waits for them
    ("h100-sxm", "balanced", 16018),  # both blocks of an SM request all their data at once
    ("a100-sxm4-40gb", "small-n", 16013),  # a block beside an empty one
    ("h100-sxm", "tile-wise", 16004),  # rows of B wait for a part of the prefetched weights
    ("h100-sxm", "stspmm", 16002),
    ("t4", "stspmm", 26004),  # blocks that copy through registers read most rows of B early
)
"""Cases that were more than 10 % apart: GPU, kernel, seed and cause (docs/decisions/0042, 0044 to 0048,
0052, 0053)."""


@pytest.mark.parametrize(("gpu", "kernel", "seed"), MENDED)
def test_cases_whose_cause_was_mended_stay_within_ten_percent(gpu: str, kernel: str, seed: int) -> None:
    found = timed(drawn(gpu, kernel, seed))
    assert found is not None
    assert found.within(0.10), found.line()


@pytest.mark.parametrize("seed", [12018, 12020])
def test_few_blocks_whose_stages_do_not_hide_dram_wait_in_each_step(seed: int) -> None:
    """cuSPARSELt on an H200: a step lasts 250 cycles with data in L2, and 300 with data from DRAM."""
    pair = timed(drawn("h200-sxm", "cusparselt", seed))
    assert pair is not None
    assert pair.within(0.05)


@pytest.mark.parametrize(("size", "kept"), [((256, 64), 0), ((1024, 1024), 1024), ((1024, 1024), 5000)])
def test_few_blocks_of_many_items_are_alone_on_their_sms(size: tuple[int, int], kept: int) -> None:
    """CSR with one token: one block has a list of up to 256 items, and no other block shares its SM."""
    gpu, mask = load_gpu("h200-sxm"), np.zeros(size, bool)
    mask.flat[np.random.default_rng(0).permutation(mask.size)[:kept]] = True
    plan = fastest_plan("csr", element_map_from_mask(mask, "unstructured"), 1, "fp16", gpu)
    assert plan.blocks < gpu.sm_count < plan.item_count
    assert estimate(plan, gpu).seconds == pytest.approx(simulate(plan, gpu).seconds, rel=0.03)


@pytest.mark.parametrize(("kernel", "seed"), [("tile-wise", 9), ("stspmm", 11), ("2:4", 9)])
def test_no_launch_of_a_stream_begins_before_the_preceding_one_has_ended(kernel: str, seed: int) -> None:
    plan, gpu = drawn("h200-sxm", kernel, seed).plan(), load_gpu("h200-sxm")
    found = estimate(plan, gpu, launch="stream").seconds
    assert found == pytest.approx(simulate(plan, gpu, launch="stream").seconds, rel=0.05)


SHORT_ITEMS = (47072, 47113, 47137, 47154, 47210, 47218, 47236)
"""Draws of STSpMM on the H200 with tiles of 1 to 16 rows, whose items have two or three k-steps."""


def test_lists_of_short_items_take_as_long_as_measured() -> None:
    """Producers need whole k-steps: with less for the last one, errors are up to -13 and +24 %."""
    record = Path("benchmarks/measured/h200-sxm-engines-apart-2026-11-30.csv")
    with record.open(encoding="utf-8") as lines:
        rows = [row for row in csv.DictReader(lines) if row["kernel"] == "stspmm"]
    measured = {int(row["seed"]): 1e-6 * float(row["measured_us"]) for row in rows}
    for seed in SHORT_ITEMS:
        pair = timed(drawn("h200-sxm", "stspmm", seed))
        assert pair is not None
        assert pair.closed_form == pytest.approx(measured[seed], rel=0.06)
        assert pair.simulated == pytest.approx(measured[seed], rel=0.06)

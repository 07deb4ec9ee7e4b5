"""Plans of the kernel for few tokens: what they mean, what they take, what they refuse."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from prunecast.choice import fastest_plan
from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.hardware.occupancy import occupancy
from prunecast.hardware.placement import block_places
from prunecast.kernels.small_n.configs import SmallConfig, small_configs
from prunecast.kernels.small_n.kernel import _compiled_resources, _plan_small_n
from prunecast.kernels.small_n.programs import WAIT_TO_COPY
from prunecast.launch import Conditions, LaunchContext, context, launch_context
from prunecast.launch.context import zero_row_count
from prunecast.launch.floor import launch_floor_s
from prunecast.models import estimate
from prunecast.models.block_times import _first_reads
from prunecast.models.roofline import look_up
from prunecast.patterns import TileMap, parse_pattern
from prunecast.plan.kernel_plan import KernelPlan, PlanDoesNotFit, Schedule
from prunecast.plan.program import Op, WarpProgram
from prunecast.plan.reference import run_reference
from prunecast.simulator import simulate
from prunecast.validation.case import Case
from prunecast.validation.case_maps import map_of
from tests.kernels.layouts import tiles_keeping
from tests.toy_gpu import toy_gpu

GPU = load_gpu("h200-sxm")
TALL = tiles_keeping([4096] * 4, height=64, k=4096)


@pytest.mark.parametrize(
    ("n", "form"),
    [
        (1, SmallConfig(64, 8, 4)),
        (16, SmallConfig(16, 16, 2, 16)),
        (64, SmallConfig(32, 64, 6)),
        (100, SmallConfig(32, 32, 4)),
    ],
)
def test_every_tile_and_token_is_multiplied_once(n: int, form: SmallConfig) -> None:
    tiles = tiles_keeping([0, 1, 17, 300], height=70, k=320)
    plan = _plan_small_n(tiles, n, "fp16", toy_gpu(), config=form)
    rng = np.random.default_rng(n)
    a = rng.integers(-4, 5, (tiles.m, tiles.k)).astype(np.float64)
    b = rng.integers(-4, 5, (tiles.k, n)).astype(np.float64)
    np.testing.assert_array_equal(run_reference(plan, a, b), (a * tiles.mask()) @ b)


def test_blocks_are_all_there_at_once_and_the_heaviest_come_first() -> None:
    tiles = tiles_keeping([1024] * 86, height=128, k=4096)
    plan = fastest_plan("small-n", tiles, 16, "fp16", GPU)
    assert plan.item_count == plan.blocks == 172
    assert plan.blocks <= occupancy(plan.resources, GPU).blocks_per_sm * GPU.sm_count
    kept = tiles_keeping([16, 512, 64], height=64, k=512)
    assert (np.diff(fastest_plan("small-n", kept, 16, "fp16", GPU).work.k_stop) <= 0).all()


def test_what_launches_leave_over_lies_together() -> None:
    """64 blocks of four to eight warps took as long as 172 of them, on an H200, 2026-11-21 (0008): of 660
    places ten launches leave 20, which lie on four SMs. Clock stamps of 64 and 48 blocks show it.
    """
    tiles = tiles_keeping([1024] * 32, height=128, k=4096)
    plan = _plan_small_n(tiles, 1, "fp16", GPU, config=SmallConfig(64, 8, 4, 4))
    blocks_of_sm = np.bincount(_places(launch_context(plan, GPU)) % GPU.sm_count, minlength=GPU.sm_count)
    assert plan.item_count == 64
    assert sorted(blocks_of_sm[blocks_of_sm > 0]) == [*[1] * 44, *[5] * 4]
    ampere = toy_gpu(compute_capability=80)
    other = _plan_small_n(tiles, 1, "fp16", ampere, config=SmallConfig(64, 8, 4, 4))
    assert launch_context(other, ampere).places is None


def test_heavy_tiles_share_an_sm(monkeypatch: pytest.MonkeyPatch) -> None:
    """More blocks than SMs: none of the heaviest has an SM to itself, and some lie together (0008)."""
    tiles = tiles_keeping([4096, *[64] * 31], height=128, k=4096)
    plan = _plan_small_n(tiles, 64, "fp16", GPU, config=SmallConfig(16, 64, 4, 4))
    places = _places(launch_context(plan, GPU))
    on_sm = np.bincount(places % GPU.sm_count, minlength=GPU.sm_count)
    assert all(on_sm[places[:8] % GPU.sm_count] > 1)
    assert sorted(np.unique(places)) == sorted(places)
    together = [time(plan, GPU).cycles for time in (simulate, estimate)]
    monkeypatch.setattr(context, "expected_places", lambda columns, fit, sms: None)
    apart = [time(plan, GPU).cycles for time in (simulate, estimate)]
    assert all(np.array(together) > 1.1 * np.array(apart))


@pytest.mark.parametrize(
    ("layer", "rows", "sparsity", "spread", "longest"),
    [
        ((2048, 5632, 24), 128, 0.8, 0.6, 1.01),
        ((2048, 5632, 1), 64, 0.8, 0.6, 1.13),
        ((1280, 5120, 5), 64, 0.8, 0.6, 1.30),
        ((5120, 1280, 48), 64, 0.8, 0.6, 1.28),
        ((5120, 1280, 5), 128, 0.8, 0.6, 1.22),
        ((768, 3072, 1), 128, 0.9, 0.4, 1.39),
        ((4096, 4096, 16), 128, 0.75, 0.4, 1.47),
    ],
)
def test_unequal_tiles_lie_as_launches_leave_them(
    layer: tuple[int, int, int], rows: int, sparsity: float, spread: float, longest: float
) -> None:
    """How long the longest block takes beside those on its SM over what it takes alone, if half of what two
    do they do in turns: mean over the SMs that clock stamps saw in all launches (H200, 2026-11-21).
    """
    m, k, n = layer
    case = Case(
        name="", m=m, k=k, n=n, dtype="fp16", pattern=f"tile-wise:{rows}", sparsity=sparsity,
        distribution=f"lognormal:{spread}", kernels=("small-n",), use="fit",
    )  # fmt: skip
    tiles = map_of(case)
    assert isinstance(tiles, TileMap)
    config = {
        (2048, 24): SmallConfig(16, 32, 2, 16),
        (5120, 48): SmallConfig(32, 64, 4),
        (5120, 5): SmallConfig(32, 8, 2, 16),
        (4096, 16): SmallConfig(16, 16, 2, 16),
    }.get((m, n), SmallConfig(16, 8, 2, 16))
    plan = _plan_small_n(tiles, n, "fp16", GPU, config)
    sm = _places(launch_context(plan, GPU)) % GPU.sm_count
    columns = plan.work.k_stop.astype(float)
    shared = np.where(sm[:, None] == sm, np.minimum(columns[:, None], columns), 0.0).sum(axis=1) - columns
    assert np.max(columns + shared / 2) / columns.max() == pytest.approx(longest, abs=0.16)


def _places(launch: LaunchContext) -> np.ndarray:
    """(blocks,): the slot of each block; SMs are filled in turn where none shares its SM."""
    return np.arange(launch.plan.blocks) if launch.places is None else launch.places


@pytest.mark.parametrize(
    ("blocks", "fit", "sms"), [(1, 2, 4), (23, 3, 14), (24, 2, 14), (27, 2, 14), (9, 9, 2)]
)
def test_lists_have_a_place_each(blocks: int, fit: int, sms: int) -> None:
    places = block_places((1,) * blocks, fit, sms)
    assert len(set(places)) == blocks
    assert places.max() < fit * sms
    if blocks > sms:
        # What whole launches leave over lies together, all else evenly
        full, on_sm = fit * sms % blocks // fit, np.bincount(places % sms, minlength=sms)
        assert all(on_sm[:full] == fit)
        assert np.ptp(on_sm[full:]) <= 1


@pytest.mark.parametrize(("blocks", "fit", "lie"), [(192, 2, [0, 72, 60]), (344, 3, [0, 0, 52, 80])])
def test_more_blocks_than_sms_lie_as_stamps_say(blocks: int, fit: int, lie: list[int]) -> None:
    # 61 SMs with two and 70 with one were seen of the first, 80 with three of the second
    assert np.bincount(np.bincount(block_places((1,) * blocks, fit, 132) % 132)).tolist() == lie


def _bytes_begun(plan: KernelPlan, posted: bool) -> int:
    """Weights that blocks ask for themselves, and for the next launch (`posted`)."""
    begin = launch_context(plan, GPU).programs[0].begin
    return sum(i.amount for i in begin if i.op is Op.LOAD_A and i.posted == posted)


def test_blocks_that_find_no_room_beside_the_launch_before_read_their_weights_late() -> None:
    """86 tiles make 172 blocks of 64 rows; two to an SM, 264 places leave 92 to the next launch."""
    form = SmallConfig(64, 64, 4, 4)
    few, many = (
        _plan_small_n(tiles_keeping([1024] * tiles, height=128, k=4096), 64, "fp16", GPU, config=form)
        for tiles in (66, 86)
    )
    ring = 4 * (64 * 32 + 32) // 4
    assert [_bytes_begun(few, posted) for posted in (False, True)] == [0, 4 * (ring // 4)]
    late, early = (_bytes_begun(many, posted) for posted in (False, True))
    assert late == pytest.approx(80 / 172 * ring, rel=0.01)
    assert late + early == pytest.approx(ring, rel=0.01)


def test_the_start_of_late_blocks_lies_under_the_way_of_the_launch() -> None:
    tiles = tiles_keeping([1024] * 86, height=128, k=4096)
    plan = _plan_small_n(tiles, 64, "fp16", GPU, config=SmallConfig(64, 64, 4, 4))
    context = launch_context(plan, GPU)
    assert context.pdl_release_s == 0.0
    hidden_s = GPU.block_start_cycles / GPU.clock_burst_hz[0]
    assert launch_floor_s(context) == pytest.approx(GPU.overlapped_launch_s - hidden_s)


@pytest.mark.parametrize(
    ("n", "form", "waits"),
    [
        (1, SmallConfig(64, 8, 4, 8), 0),
        (1, SmallConfig(64, 8, 6, 8), 1),
        (16, SmallConfig(16, 16, 2, 16), 1),
        (16, SmallConfig(32, 16, 8, 4), 1),
        (64, SmallConfig(64, 64, 4, 4), 4),
        (64, SmallConfig(16, 64, 8, 4), 7),
    ],
)
def test_columns_that_are_waited_for_one_by_one(n: int, form: SmallConfig, waits: int) -> None:
    """In code compiled for sm_90a: `LDG` behind `ACQBULK`, each in front of the copies that it names."""
    few = _plan_small_n(tiles_keeping([4096] * 4, height=64, k=4096), n, "fp16", GPU, config=form)
    (worker,) = launch_context(few, GPU).programs
    begin = worker.begin
    waited = [pair[0] for pair in pairwise(begin) if pair[1].op is Op.WAIT_LOAD]
    assert [i.op for i in waited] == [Op.LOAD_INDEX] * waits
    assert not worker.start


@pytest.mark.parametrize(("n", "form"), [(1, SmallConfig(64, 8, 4, 16)), (16, SmallConfig(32, 16, 2, 16))])
def test_addresses_behind_the_wait_are_counted_once(n: int, form: SmallConfig) -> None:
    """Those that the time of a launch has, of the tile kernel, are not counted again."""
    few = _plan_small_n(tiles_keeping([4096] * 4, height=64, k=4096), n, "fp16", GPU, config=form)
    first, second = [
        i for i in launch_context(few, GPU).programs[0].begin if i.op is Op.ISSUE and i.issue > 0
    ][:2]
    assert form.warps * (second.issue - first.issue) == pytest.approx(WAIT_TO_COPY, abs=form.warps)
    assert 0 < first.amount < second.amount


@pytest.mark.parametrize(
    ("n", "form"),
    [(8, SmallConfig(64, 8, 4, 8)), (16, SmallConfig(32, 16, 8, 4)), (64, SmallConfig(64, 64, 4, 4))],
)
def test_a_k16_multiplies_a_whole_tile_and_its_weights_pass_the_port(n: int, form: SmallConfig) -> None:
    """Multiply-adds of the warps are rows x tokens x 16; weights that land are 2 bytes x 16 of every row."""
    few = _plan_small_n(tiles_keeping([4096] * 4, height=64, k=4096), n, "fp16", GPU, config=form)
    (worker,) = launch_context(few, GPU).programs
    multiplied = sum(i.amount for i in worker.step if i.op is Op.MMA)
    assert multiplied * form.warps == form.block_m * form.block_n * 16
    loads = sum(i.amount for i in worker.step if i.op is Op.LOAD_A)
    assert loads * form.warps >= form.block_m * 32

    addresses, later = (
        next(i.amount for i in code if i.op is Op.SHARED and not i.posted and i.ahead >= least)
        for code, least in ((worker.begin, 0), (worker.step, 1))
    )
    assert form.warps * (later - addresses) == form.block_m * 32


@pytest.mark.parametrize("tokens", [1, 16, 64])
def test_few_bytes_of_c_are_through_as_soon_as_l2_answers(tokens: int) -> None:
    plan = fastest_plan("small-n", tiles_keeping([16], height=64, k=64), tokens, "fp16", GPU)
    bytes_of_c = 2 * min(plan.shape.block_m, 64) * min(plan.shape.block_n, tokens)
    beyond = (GPU.store_latency_cycles - GPU.l2_latency_cycles) * bytes_of_c / 65_536
    assert launch_context(plan, GPU).store_latency_cycles == GPU.l2_latency_cycles + round(beyond)
    late = fastest_plan("stspmm", tiles_keeping([16], height=64, k=64), 64, "fp16", GPU)
    assert launch_context(late, GPU).store_latency_cycles == GPU.store_latency_cycles


def test_a_step_waits_for_its_own_k16() -> None:
    """Of four on their way; one that takes as long as memory takes to answer is not waited for any longer."""
    short = tiles_keeping([2048] * 4, height=64, k=4096)
    more = []
    for depth in (2, 4):
        form = SmallConfig(64, 16, depth, 8)
        long, half = (
            simulate(_plan_small_n(t, 16, "fp16", GPU, config=form), GPU).cycles for t in (TALL, short)
        )
        more.append(long - half)
    assert more[1] < 0.9 * more[0]


def test_a_plan_launches_one_block_for_each_item_wherever_they_lie() -> None:
    tiles = tiles_keeping([1024] * 32, height=128, k=4096)
    plan = _plan_small_n(tiles, 1, "fp16", GPU, config=SmallConfig(64, 8, 4, 4))
    assert plan.schedule is Schedule.HARDWARE
    assert plan.blocks == plan.item_count
    assert launch_context(plan, GPU).crowd > 1


def test_the_start_of_blocks_lies_under_the_launch_before() -> None:
    """More blocks than half of the SMs: with fewer, any kernel whose launches overlap starts early."""
    tiles = tiles_keeping([64] * 80, height=64, k=64)
    plan = _plan_small_n(tiles, 1, "fp16", GPU, SmallConfig(64, 8, 6))
    early = launch_context(plan, GPU)
    programs = tuple(replace(program, start=()) for program in early.programs)
    early = replace(early, programs=programs, places=None, pdl_release_s=0.0)
    late = replace(early, co_resident=False)
    assert plan.item_count > GPU.sm_count / 2
    start_s = GPU.block_start_cycles / GPU.clock_burst_hz[0]
    assert launch_floor_s(late) - launch_floor_s(early) == pytest.approx(start_s)
    in_stream = Conditions(launch="stream")
    floors = [launch_floor_s(replace(each, conditions=in_stream)) for each in (late, early)]
    assert floors == [GPU.stream_launch_s] * 2


@pytest.mark.parametrize(
    ("m", "k", "n", "kept", "us"),
    [
        (3072, 768, 1, 77, 2.47),
        (4096, 4096, 1, 410, 3.34),
        (4096, 4096, 1, 2048, 8.21),
        (11008, 4096, 1, 2048, 15.2),
        (4096, 11008, 16, 2752, 9.67),
        (4096, 4096, 32, 410, 4.48),
        (4096, 11008, 32, 5504, 17.4),
        (4096, 11008, 64, 1101, 8.62),
        (768, 3072, 16, 768, 4.02),
        (1024, 4096, 16, 1024, 4.70),
        (11008, 4096, 64, 1024, 14.9),
        (3072, 768, 16, 77, 2.45),
        (3072, 768, 64, 192, 4.3),
    ],
)
def test_cases_measured_on_an_h200(m: int, k: int, n: int, kept: int, us: float) -> None:
    """Recorded 2026-11-21, of those marked fit; equal tiles, means of the boards."""
    tiles = tiles_keeping([kept] * (m // 128), height=128, k=k)
    plan = fastest_plan("small-n", tiles, n, "fp16", GPU)
    measured = {
        (3072, 64): SmallConfig(16, 64, 8, 4),
        (768, 16): SmallConfig(16, 16, 2, 16),
    }  # no longer chosen
    if (m, n) in measured:
        plan = _plan_small_n(tiles, n, "fp16", GPU, measured[m, n])
    assert simulate(plan, GPU).seconds * 1e6 == pytest.approx(us, rel=0.12)


def test_few_tokens_are_predicted_faster_than_by_the_kernel_for_many() -> None:
    """11008 x 4096 at 75 %, 16 tokens: 23 MB of weights are 5.6 us; the other kernel took 11 (0008)."""
    tiles = tiles_keeping([1024] * 86, height=128, k=4096)
    plan = fastest_plan("small-n", tiles, 16, "fp16", GPU)
    for seconds in (simulate(plan, GPU).seconds, estimate(plan, GPU).seconds):
        assert 5.6e-6 < seconds < 11e-6


@pytest.mark.parametrize(
    ("m", "k", "kept", "n", "fastest"),
    [
        (11008, 4096, 1024, 1, ((64, 8, 4, 8), (64, 8, 2, 16))),
        (11008, 4096, 1024, 16, ((64, 16, 4, 8),)),
        (11008, 4096, 1024, 64, ((64, 64, 4, 4),)),
        (4096, 4096, 1024, 1, ((64, 8, 4, 16),)),
        (4096, 4096, 1024, 16, ((64, 16, 2, 16), (16, 16, 2, 16))),
        (4096, 4096, 1024, 64, ((32, 64, 2, 16),)),
    ],
)
def test_the_form_chosen_is_one_that_was_fast(m: int, k: int, kept: int, n: int, fastest: tuple) -> None:
    """Within 5 % of the fastest of 22 forms on an H200, 2026-11-21 (0008)."""
    tiles = tiles_keeping([kept] * (m // 128), height=128, k=k)
    plan = fastest_plan("small-n", tiles, n, "fp16", GPU)
    assert str(plan.config) in [str(SmallConfig(*config)) for config in fastest]


def test_a_form_that_fits_nowhere_is_planned_and_not_timed() -> None:
    tiles = tiles_keeping([64] * 4, height=64, k=64)
    plan = _plan_small_n(tiles, 64, "fp16", GPU, config=SmallConfig(64, 64, 8, 16))
    for time in (simulate, estimate):
        with pytest.raises(PlanDoesNotFit, match="small-n"):
            time(plan, GPU)


def test_more_tokens_are_left_to_other_kernels() -> None:
    tiles = tiles_keeping([16], height=64, k=64)
    with pytest.raises(BadInput, match="at most 64 tokens, got 65"):
        fastest_plan("small-n", tiles, 65, "fp16", GPU)


def test_rows_in_no_tile_cost_no_second_launch() -> None:
    mask = np.zeros((128, 64), np.bool_)
    mask[:64, :16] = True
    tiles = parse_pattern("tile-wise-2d:64").map(mask)
    assert isinstance(tiles, TileMap)
    assert zero_row_count(fastest_plan("small-n", tiles, 16, "fp16", GPU)) == 0
    assert zero_row_count(fastest_plan("stspmm", tiles, 16, "fp16", GPU)) == 64


@pytest.mark.parametrize(
    ("dtype", "capability", "told"), [("fp32", 90, "fp16 or bf16"), ("fp16", 75, "compute capability 8.0")]
)
def test_what_it_cannot_run_is_refused(dtype: str, capability: int, told: str) -> None:
    tiles = tiles_keeping([16], height=64, k=64)
    with pytest.raises(BadInput, match=told):
        fastest_plan("small-n", tiles, 16, dtype, toy_gpu(compute_capability=capability))


def test_whole_launches_that_take_all_places_lie_evenly() -> None:
    """264 blocks of which four fit take 13.6 us, half of what 528 do (H200, 2026-11-22)."""
    place = block_places((1,) * 264, 4, 132)
    assert np.bincount(place % 132).tolist() == [2] * 132
    assert np.bincount(block_places((1,) * 264, 3, 132) % 132).max() == 3


@pytest.mark.parametrize(("n", "passes", "read"), [(20, 20, 0), (24, 24, 0), (17, 48, 512)])
def test_rows_land_in_parts_of_passes(n: int, passes: int, read: int) -> None:
    """Beside the 32 passes of 32 tokens: one takes 32 bytes, or a word of a row of those that come by words.
    Of these three are read for 17 tokens instead of two.
    """
    some, full = (sum(i.amount for i in _wide(m).step if i.op is Op.SHARED and not i.ahead) for m in (n, 32))
    assert 16 * (some - full) == pytest.approx(128 * (passes - 32) + read, abs=64)


def _wide(n: int) -> WarpProgram:
    form = SmallConfig(32, 32, 2, 16)
    return _plan_small_n(tiles_keeping([512], height=32, k=1024), n, "fp16", GPU, config=form).programs[0]


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 8, 12, 16, 20, 24, 32, 33, 40, 48, 63, 64])
def test_copies_of_a_lane_bring_its_tokens_wherever_rows_begin(n: int) -> None:
    """Rows of B begin at multiples of their unit. A copy brings 16, 8 or 4 bytes that are aligned to as many;
    4-byte words reach beyond tokens that begin in the middle of one."""
    for config in small_configs(n):
        wanted, unit = 2 * config.tokens, math.gcd(2 * n, 16)
        size = 4 if unit < 4 or config.tokens == 1 else min(unit, wanted)
        starts = range(0, 16, min(unit, wanted))
        copies = max((start + wanted - 1) // size - start // size + 1 for start in starts)
        assert config.copies_per_row(n) == copies
        assert config.row_slot_bytes(n) == 32 * size * copies >= 4 * config.block_n * 2
        assert config.by_words(n) == (size == 4 and (unit == 2 or config.tokens == 1))
        assert config.shape == (config.block_m, config.block_n, 16 * config.warps)


@pytest.mark.parametrize("n", range(1, 65))
def test_a_block_holds_all_tokens_in_the_narrowest_width(n: int) -> None:
    """Or in 16 tokens, where 8 copy an even number of tokens word by word."""
    found = list(small_configs(n))
    narrowest = min(width for width in (8, 16, 32, 64) if width >= n)
    widths = {8, 16} if n in (2, 4, 6, 8) else {narrowest}
    assert {config.block_n for config in found} == widths
    assert {config.block_m for config in found} == {64, 32, 16}
    assert len(set(found)) == len(found)
    for config in found:
        assert config.registers(n) <= 255


@pytest.mark.parametrize("n", [1, 2, 3, 8, 9, 15, 16, 17, 24, 33, 48, 64])
def test_every_load_of_rows_brings_the_sectors_that_hold_their_tokens(n: int) -> None:
    """A load states bytes for a whole block of tokens: those of its n tokens, scaled up."""
    config = next(small_configs(n))
    plan = _plan_small_n(TALL, n, "fp16", GPU, config=config)
    code = [i for p in plan.programs for part in (p.begin, p.fill, p.step) for i in part]
    loads = {i.amount for i in code if i.op is Op.LOAD_B}
    sectors = len({byte // 32 for byte in range(2 * n)})
    assert loads
    for amount in loads:
        assert (amount - 1) * n < 32 * sectors * config.block_n <= amount * n


@pytest.mark.parametrize("n", [1, 7, 8, 11, 16, 17, 32, 33, 34, 63, 64])
def test_compiled_registers_are_whole_units_within_the_bound_of_each_form(n: int) -> None:
    """Of Hopper they are known for every form; elsewhere a block has as many as its bound allows."""
    for form in small_configs(n):
        bound = form.resources(n)
        found = _compiled_resources(form, n, GPU)
        assert found == bound._replace(registers_per_thread=found.registers_per_thread)
        assert found.registers_per_thread % 8 == 0
        assert 48 <= found.registers_per_thread <= bound.registers_per_thread
        assert _compiled_resources(form, n, load_gpu("a100-sxm4-80gb")) == bound


def test_rows_of_b_are_new_as_often_in_every_token_range() -> None:
    """Each range reads its own rows. One tile alone reads every row first, two equal ones every second."""
    form = SmallConfig(64, 8, 4, 8)
    shares = [
        [
            _first_reads(look_up(launch_context(_plan_small_n(tiles, n, "fp16", GPU, config=form), GPU)))
            for n in (8, 16, 40)
        ]
        for tiles in (tiles_keeping([512] * count, height=64, k=512) for count in (1, 2))
    ]
    assert shares == [[1.0] * 3, pytest.approx([1.0 - 0.5 ** (form.shape.block_k / form.warps)] * 3)]

"""The contract refuses work lists that a kernel could not run."""

from dataclasses import replace

import numpy as np
import pytest

from prunecast.choice import fastest_plan
from prunecast.hardware.occupancy import BlockResources
from prunecast.plan.assignment import take_items
from prunecast.plan.kernel_plan import KernelPlan, PlanDoesNotFit, Schedule
from prunecast.plan.program import Charge, Instruction, Op
from tests.kernels.layouts import tiles_keeping
from tests.toy_gpu import toy_gpu


def plan(split: int | None = 2) -> KernelPlan:
    """Two low tiles, which the lowest block suits; the one list begins with part 1 of the first tile."""
    tiles = tiles_keeping([256, 100], height=16, k=300)
    made = fastest_plan("stspmm", tiles, 70, "fp16", toy_gpu(), split=split)
    parts_first = np.argsort(made.work.owner, kind="stable")
    return replace(made, work=take_items(made.work, parts_first), blocks=1, schedule=Schedule.STATIC)


def changed(column: str, index: int, value: int) -> KernelPlan:
    good = plan()
    values = getattr(good.work, column).copy()
    values[index] = value
    return replace(good, work=good.work._replace(**{column: values}))


@pytest.mark.parametrize(
    ("column", "index", "value", "message"),
    [
        ("tile", 0, 2, "names a tile outside 0 to 1"),
        ("tile", 0, -1, "names a tile outside"),
        ("k_stop", 0, 301, "exceeds the kept columns"),
        ("k_start", 0, -1, "exceeds the kept columns"),
        ("k_start", 0, 300, "negative k range"),
        ("token_stop", 0, 71, "tokens lie outside 0 to 70"),
        ("token_stop", 0, 0, "empty token range"),
        ("owner", 0, 1, "needs exactly one owner"),
        ("block_start", 0, 1, "block_start must rise"),
        ("block_start", -1, 1, "block_start must rise"),
    ],
)
def test_a_broken_work_list_is_refused(column, index, value, message):
    assert plan().work.owner[0] == 0
    with pytest.raises(PlanDoesNotFit, match=message):
        changed(column, index, value)


def test_every_group_has_one_owner_and_so_has_what_is_not_split():
    """The only group here, and the item of the second tile."""
    work = plan().work
    owners = np.flatnonzero(work.owner)
    assert set(work.group[owners].tolist()) == set(work.group.tolist()) == {-1, 0}
    for index in range(work.tile.size):
        with pytest.raises(PlanDoesNotFit, match="needs exactly one owner"):
            changed("owner", index, int(index not in owners))
    whole = plan(split=None)
    assert whole.work.group.max() == -1
    with pytest.raises(PlanDoesNotFit, match="needs exactly one owner"):
        replace(whole, work=whole.work._replace(owner=np.zeros_like(whole.work.owner)))


def test_a_column_of_another_length_is_refused():
    good = plan()
    with pytest.raises(PlanDoesNotFit, match="must all have"):
        replace(good, work=good.work._replace(part=good.work.part[1:]))


def test_a_part_behind_an_owner_is_refused():
    good = plan()
    backwards = type(good.work)(
        np.array([0, good.item_count], np.int32), *(column[::-1] for column in good.work[1:])
    )
    with pytest.raises(PlanDoesNotFit, match="stands behind an owner"):
        replace(good, work=backwards, blocks=1, schedule=Schedule.STATIC)


def test_a_tile_taller_than_the_block_is_refused():
    good = plan()
    with pytest.raises(PlanDoesNotFit, match="an item of 16 x 70 exceeds the block's 8 x 128"):
        replace(good, shape=good.shape._replace(block_m=8))


def test_a_grid_that_differs_from_the_lists_is_refused():
    good = plan()
    with pytest.raises(PlanDoesNotFit, match="for 99 blocks"):
        replace(good, blocks=99)
    work = good.work._replace(block_start=np.array([0, 0, good.item_count], np.int32))
    with pytest.raises(PlanDoesNotFit, match="one item per block"):
        replace(good, work=work, blocks=2, schedule=Schedule.HARDWARE)


def test_programs_and_resources_must_agree():
    with pytest.raises(PlanDoesNotFit, match="programs use 384 threads, resources say 256"):
        replace(plan(), resources=BlockResources(256, 168, 0, 4))


def test_a_plan_leaves_the_arrays_it_is_given_writable():
    good = plan()
    mine = good.work.part.copy()
    replace(good, work=good.work._replace(part=mine))
    assert mine.flags.writeable


def test_a_plan_cannot_be_changed_in_place():
    with pytest.raises(ValueError, match="read-only"):
        plan().work.part[0] = 1


def test_the_fingerprint_names_the_work():
    assert plan().fingerprint() == plan().fingerprint()
    assert plan().fingerprint() != plan(split=None).fingerprint()
    assert plan().fingerprint() != replace(plan(), n=71).fingerprint()


@pytest.mark.parametrize(
    "other",
    [
        {"pdl": False},
        {"b_access": "dense_tile"},
        {"fewest_steps": 3},
        {"padded": np.array([300, 300])},
        {"tensor": "none"},
        {"dtype": "bf16"},
    ],
)
def test_the_fingerprint_has_every_column(other):
    assert plan(split=None).fingerprint() != replace(plan(split=None), **other).fingerprint()


def test_the_fingerprint_has_the_programs():
    worker = plan().programs[0]
    issuing = replace(worker, step=(*worker.step, Instruction(Op.ISSUE)))
    assert plan().fingerprint() != replace(plan(), programs=(issuing, *plan().programs[1:])).fingerprint()


def test_the_fingerprint_names_no_field_of_an_instruction_that_is_not_used():
    """A field more changes no fingerprint of the plans before it, which hash this text."""
    copy = Instruction(Op.COPY_A, 64, leader=True, charges=(Charge("wait", field="issue"),))
    stated = {"op": Op.COPY_A, "amount": 64, "leader": True, "charges": copy.charges}
    assert repr(copy) == f"Instruction({stated})"


def test_properties_of_a_plan():
    whole = plan(split=None)
    assert (whole.m, whole.k, whole.item_count) == (32, 300, 2)
    assert sorted(whole.steps_per_item.tolist()) == [2, 4]
    assert whole.density == pytest.approx((256 + 100) / 600)
    assert whole.sparsity == pytest.approx(1 - whole.density)
    assert whole.pattern == "tile-wise:16"

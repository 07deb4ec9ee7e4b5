"""Weights of a block's first stages are asked for before its rows of B, where the kernel does so."""

from prunecast.hardware import load_gpu
from prunecast.kernels import plan_stspmm
from prunecast.kernels.brought_ahead import brought_ahead
from prunecast.kernels.dense import plan_dense
from prunecast.kernels.launch_floor import begins_early, weights_come_early
from prunecast.kernels.program import Op, When
from tests.kernels.layouts import tiles_keeping

H200 = load_gpu("h200-sxm")


def plan_of(n):
    """32 tiles of 128 rows."""
    return plan_stspmm(tiles_keeping([512] * 32, height=128, k=1024), n, "fp16", H200, split=None)


def test_a_ring_of_weights_goes_before_the_rows():
    plan = plan_of(512)
    producer, consumer = brought_ahead(plan)
    ahead = [i for i in producer.begin if i.op is Op.COPY_A]
    assert [i.ahead for i in ahead] == list(range(plan.resources.stages))
    assert {i.when for i in ahead} == {When.AHEAD}
    assert [i.when for i in producer.step if i.op is Op.COPY_A] == [When.IN_TURN]
    assert consumer == plan.programs[1]
    columns = [i.op for i in producer.begin].index(Op.LOAD_INDEX)
    assert producer.begin[columns + 1].op is Op.COPY_A
    assert producer.begin[-1].op is Op.WAIT_LOAD


def test_other_kernels_keep_their_programs():
    plan = plan_dense(1024, 1024, 512, "fp16", H200)
    assert brought_ahead(plan) == plan.programs


def test_weights_come_under_the_launch_before_where_most_blocks_begin_there():
    few, most, all_wait = plan_of(32), plan_of(128), plan_of(512)
    assert (few.blocks, all_wait.blocks) == (32, 128)
    assert begins_early(few, H200)
    assert weights_come_early(few, H200)
    assert weights_come_early(most, H200) == (3 * most.blocks <= 264)
    assert not weights_come_early(all_wait, H200)

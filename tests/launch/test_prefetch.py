"""Weights of a block's first stages are asked for before its rows of B, where the kernel does so."""

from prunecast.choice import fastest_plan
from prunecast.hardware import load_gpu
from prunecast.kernels.libraries.cublas.kernel import plan_dense
from prunecast.launch import launch_context
from prunecast.launch.memory import memory_rules
from prunecast.plan.program import Op, When
from prunecast.simulator.launch_gap import with_prefetch
from tests.kernels.layouts import tiles_keeping

H200 = load_gpu("h200-sxm")


def plan_of(n):
    """32 tiles of 128 rows."""
    return fastest_plan("stspmm", tiles_keeping([512] * 32, height=128, k=1024), n, "fp16", H200, split=None)


def test_a_ring_of_weights_goes_before_the_rows():
    plan = plan_of(512)
    context = launch_context(plan, H200)
    producer, consumer = with_prefetch(context)
    ahead = [i for i in producer.begin if i.op is Op.COPY_A]
    assert [i.ahead for i in ahead] == list(range(plan.resources.stages))
    assert {i.when for i in ahead} == {When.AHEAD}
    assert [i.when for i in producer.step if i.op is Op.COPY_A] == [When.IN_TURN]
    assert consumer == context.programs[1]
    columns = [i.op for i in producer.begin].index(Op.LOAD_INDEX)
    assert producer.begin[columns + 1].op is Op.COPY_A
    assert producer.begin[-1].op is Op.WAIT_LOAD


def test_other_kernels_keep_their_programs():
    plan = plan_dense(1024, 1024, 512, "fp16", H200)
    context = launch_context(plan, H200)
    assert with_prefetch(context) == context.programs


def test_blocks_that_start_under_the_launch_before_have_weights_when_b_may_be_read():
    few, most, all_wait = plan_of(32), plan_of(384), plan_of(512)
    assert [plan.blocks for plan in (few, most, all_wait)] == [32, 96, 128]
    assert launch_context(few, H200).prologue_is_hidden
    # 36 on SMs that were left, and of all blocks the share that the wait for columns has of a prologue. The
    # blocks start in groups: three of up to 36, and 32 of 4
    waiting = H200.dram_latency_cycles / launch_context(most, H200).prologue_cycles
    assert memory_rules(launch_context(most, H200)).early_blocks == int(36 * (1 + 3 * waiting))
    assert memory_rules(launch_context(all_wait, H200)).early_blocks == int(4 * (1 + 32 * waiting))


def test_dram_brings_no_more_weights_than_it_can():
    """88 tiles of six stages of 16 KB are 8.7 MB; in a prologue of 1,900 cycles DRAM brings 4.7."""
    tiles = tiles_keeping([512] * 88, height=128, k=1024)
    plan = fastest_plan("stspmm", tiles, 128, "fp16", H200, split=None)
    assert plan.blocks == 88
    assert 30 < memory_rules(launch_context(plan, H200)).early_blocks < 66


def test_where_every_sm_has_a_block_none_starts_early():
    tiles = tiles_keeping([512] * 33, height=128, k=1024)
    plan = fastest_plan("stspmm", tiles, 512, "fp16", H200, split=None)
    assert memory_rules(launch_context(plan, H200)).early_blocks == 0


def test_two_launches_hide_each_other_up_to_half_of_the_sms():
    """With 132 SMs, 66 blocks leave as many free SMs as the next launch needs; 67 do not."""
    tiles = [tiles_keeping([512] * count, height=128, k=1024) for count in (66, 67)]
    plans = [fastest_plan("stspmm", one, 32, "fp16", H200, split=None) for one in tiles]
    assert [(plan.blocks, plan.item_count) for plan in plans] == [(66, 66), (67, 67)]
    assert [launch_context(plan, H200).prologue_is_hidden for plan in plans] == [True, False]

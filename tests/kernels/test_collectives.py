"""Sums and gathers over the GPUs of a node: bytes that are sent, laws, and measured times."""

import csv
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunecast.errors import BadInput
from prunecast.hardware import gpu_names, load_gpu
from prunecast.kernels.libraries.collectives.call import (
    KERNELS,
    KINDS,
    MOST_DIRECT,
    MOST_PCIE,
    check_gpus,
    collective,
)
from prunecast.validation.case import use_by_rule

H200 = load_gpu("h200-sxm")
MEASURED = Path(__file__).parents[2] / "benchmarks/measured/h200-sxm-all-reduce-2026-11-28.csv"
OF_KIND = {"nccl": ("NCCL, low latency", "NCCL"), "one-shot": ("one-shot",), "two-shot": ("two-shot",)}
nodes = st.sampled_from([2, 4, 8])


def sent_by_each(gpus: int, parts: int, rounds: int) -> Counter[int]:
    """Send every message of a sum in two rounds, or of whole tensors in one, and count parts by sender."""
    sent: Counter[int] = Counter()
    for sender in range(gpus):
        for receiver in range(gpus):
            if sender == receiver:
                continue
            if not rounds:
                sent[sender] += parts  # the whole tensor
                continue
            sent[sender] += parts // gpus  # the receiver's part of the sender's tensor
            if rounds == 2:
                sent[sender] += parts // gpus  # the sum of the sender's part
    return sent


@pytest.mark.parametrize("gpus", [2, 4, 8])
@pytest.mark.parametrize("form", KERNELS.values(), ids=KERNELS)
def test_bytes_of_a_gpu_are_those_of_all_messages(form, gpus):
    sent = sent_by_each(gpus, 64, form.rounds)
    assert set(sent.values()) == {form.sent(64, gpus)}


@pytest.mark.parametrize("gpus", [2, 4, 8])
@pytest.mark.parametrize("form", KERNELS.values(), ids=KERNELS)
def test_the_start_grows_by_a_hop_for_each_gpu_beyond_two(form, gpus):
    numbers = {f"{form.costs}_start_s": 5e-6, f"{form.costs}_hop_s": 1e-6, f"{form.costs}_share": 0.5}
    parts = form.parts(64.0, gpus, 1e9, numbers)
    assert parts["launch"] == pytest.approx({2: 5e-6, 4: 7e-6, 8: 11e-6}[gpus])
    assert parts["link"] == pytest.approx(form.sent(64, gpus) / 0.5e9)


@given(st.integers(1, 2**30), nodes, st.sampled_from(KINDS))
def test_parts_add_up_and_no_link_is_faster_than_its_peak(size, gpus, kind):
    call = collective(kind, size, gpus, H200)
    assert call.seconds == pytest.approx(sum(call.parts.values()))
    assert call.seconds_low < call.seconds < call.seconds_high
    least = (gpus - 1) * size / gpus / H200.link_bytes_per_s
    assert call.parts["link"] >= least
    assert call.bound in ("link", "latency")


@given(st.integers(1, 2**29), nodes, st.sampled_from(KINDS))
def test_more_bytes_and_more_gpus_need_longer(size, gpus, kind):
    call = collective(kind, size, gpus, H200)
    assert collective(kind, 2 * size, gpus, H200).seconds > call.seconds
    if gpus < 8:
        assert collective(kind, size, 2 * gpus, H200).seconds > call.seconds


def test_large_tensors_and_pcie_are_not_read_directly():
    names = {collective("all reduce", size, 4, H200).kernel for size in (2**13, 2**20, 2**24)}
    assert all(KERNELS[name].is_direct for name in names)
    assert KERNELS[collective("all reduce", MOST_DIRECT, 4, H200).kernel].is_direct
    assert collective("all reduce", MOST_DIRECT + 2, 4, H200).kernel == "NCCL"
    pcie = load_gpu("l40s")
    assert pcie.link_bytes_per_s <= MOST_PCIE
    assert not KERNELS[collective("all reduce", 2**20, 4, pcie).kernel].is_direct


@pytest.mark.parametrize(("rate", "direct"), [(MOST_PCIE, False), (1.01 * MOST_PCIE, True)])
def test_links_faster_than_pcie_are_read_directly(rate, direct):
    gpu = replace(H200, link_bytes_per_s=rate)
    assert KERNELS[collective("all reduce", 2**13, 4, gpu).kernel].is_direct == direct


def test_a_call_is_bound_by_the_longer_part():
    for size, bound in ((2**10, "latency"), (2**28, "link")):
        call = collective("all reduce", size, 4, H200)
        assert call.bound == bound
        assert (call.parts["link"] > call.parts["launch"]) == (bound == "link")


def test_measured_sums_that_were_not_fitted():
    with MEASURED.open(encoding="utf-8") as file:
        rows = [
            r for r in csv.DictReader(file) if use_by_rule(int(r["bytes"]), 2, 1, "all reduce") == "judge"
        ]
    errors = []
    for row in rows:
        call = collective("all reduce", float(row["bytes"]), 2, H200, forms=OF_KIND[row["kind"]])
        errors.append(abs(call.seconds / float(row["seconds"]) - 1.0))
    assert len(errors) >= 10
    assert sum(errors) / len(errors) < 0.04


def test_bad_input_is_refused_in_a_line():
    with pytest.raises(BadInput, match="2, 4 or 8 GPUs of a node, got 3"):
        check_gpus(3, H200)
    with pytest.raises(BadInput, match="no link to another GPU"):
        check_gpus(2, load_gpu("gb10"))
    with pytest.raises(BadInput, match="collective must be one of all reduce, all gather"):
        collective("broadcast", 1.0, 2, H200)
    for name in gpu_names():
        check_gpus(1, load_gpu(name))

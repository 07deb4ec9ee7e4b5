"""Costs may be fitted again, work lists of recorded STSpMM plans stay: their times would be lost."""

from benchmarks.golden import sample
from prunecast.hardware import load_gpu
from prunecast.validation.case_maps import map_of, measured_plan, recorded_fingerprint


def test_recorded_plans_of_stspmm_are_made_again():
    h200 = load_gpu("h200-sxm")
    rows = [row for row in sample(16) if row.kernel == "stspmm"]
    others = [
        row.case.name
        for row in rows
        if row.plan != recorded_fingerprint(measured_plan(row, map_of(row.case), h200))
    ]
    assert len(rows) == 80
    assert others == []

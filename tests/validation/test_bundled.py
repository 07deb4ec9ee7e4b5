"""Which record comes with the package for which GPU."""

from importlib import resources

import pytest

from prunecast.errors import BadInput
from prunecast.validation.records import read_runs
from prunecast.validation.validate import bundled_records


@pytest.mark.parametrize(("gpu", "recorded"), [(None, "h200-sxm"), ("h100-sxm", "h100-sxm")])
def test_a_record_is_of_the_gpu_that_was_asked_for(gpu, recorded):
    (path,) = bundled_records(gpu)
    assert {run.header.gpu for run in read_runs(path)} == {recorded}


def test_a_spec_of_ones_own_has_the_record_of_its_gpu(tmp_path):
    spec = tmp_path / "mine.toml"
    spec.write_text((resources.files("prunecast.hardware") / "data" / "h100-sxm.toml").read_text())
    assert bundled_records(str(spec)) == bundled_records("h100-sxm")


@pytest.mark.parametrize("gpu", ["b200", "../h200-sxm"])
def test_other_gpus_have_none(gpu):
    with pytest.raises(BadInput):
        bundled_records(gpu)

"""Libraries: tables say what they have, each row with version, date, kind and source."""

import datetime

import pytest

from prunecast.hardware import gpu_names, load_gpu
from prunecast.kernels.libraries.library_tables import numbers, rows_for, table
from prunecast.kernels.table import KERNELS

FAMILIES = ("cublas_families", "cusparse_families", "cusparselt_families")
KINDS = {"measured", "fitted", "vendor", "guess"}


@pytest.mark.parametrize("families", FAMILIES)
@pytest.mark.parametrize("name", gpu_names())
def test_every_gpu_has_families_that_say_where_they_come_from(families, name):
    rows = rows_for(families, load_gpu(name).compute_capability)
    assert rows
    for row in rows:
        assert row["kind"] in KINDS
        assert row["version"]
        assert row["source"]
        assert datetime.date.fromisoformat(row["date"])


def test_every_kernel_of_cublas_belongs_to_a_family():
    families = {row["family"] for row in table("cublas_families")}
    assert {row["family"] for row in table("cublas_kernels")} == families


def test_no_two_kernels_of_a_family_have_the_same_tile():
    tiles = [(row["family"], row["block_m"], row["block_n"]) for row in table("cublas_kernels")]
    assert len(set(tiles)) == len(tiles)


def test_entries_are_numbers_or_ranges():
    assert numbers("70 72") == (70, 72)
    assert numbers("8-320") == (8, 320)
    assert numbers("") == ()


def test_libraries_are_kernels_like_others():
    assert {name for name, kernel in KERNELS.items() if kernel.library} == {"dense", "csr", "cusparselt"}
    for name in ("dense", "csr", "cusparselt"):
        assert KERNELS[name].costs_on(load_gpu("h200-sxm"))


def test_the_first_config_is_the_one_that_is_planned():
    gpu = load_gpu("h200-sxm")
    first, second = KERNELS["dense"].configs(2048, 2048, 512, "fp16", gpu)[:2]
    assert KERNELS["dense"].plan(2048, 2048, 512, "fp16", gpu).shape == first.kernel.config.shape
    other = KERNELS["dense"].plan(2048, 2048, 512, "fp16", gpu, config=second)
    assert other.shape == second.kernel.config.shape

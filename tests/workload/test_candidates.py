import pytest

from prunecast.errors import BadInput
from prunecast.kernels import KERNELS
from prunecast.patterns import PATTERNS, parse_pattern
from prunecast.workload.candidates import candidates, kernels_of


def test_every_kernel_has_a_pattern_of_its_own():
    for name, kernel in KERNELS.items():
        assert name in kernels_of(kernel.natural_pattern)
        assert parse_pattern(kernel.natural_pattern).canonical == kernel.natural_pattern


def test_every_pattern_runs_somewhere():
    for pattern in PATTERNS.values():
        assert set(kernels_of(pattern.example)) <= set(KERNELS)
        assert kernels_of(pattern.example)
    for kernel in KERNELS.values():
        assert {*kernel.families, *kernel.not_families} <= {*PATTERNS, "2:4"}


def test_without_a_pattern_all_kernels_run_on_their_own_but_for_those_that_must_be_named():
    usual = [(name, k.natural_pattern) for name, k in KERNELS.items() if not k.opt_in]
    assert [(c.kernel, c.pattern) for c in candidates()] == usual
    assert usual[0] == ("dense", "dense")
    for name, kernel in KERNELS.items():
        if kernel.opt_in:
            assert candidates([name])[1:] == ((name, kernel.natural_pattern, True),)


@pytest.mark.parametrize(
    ("pattern", "kernels"),
    [
        ("tile-wise:64", ["dense", "tile-wise", "stspmm", "small-n", "csr"]),
        ("block:32x32", ["dense", "block-sparse", "stspmm", "small-n", "csr"]),
        ("2:4", ["dense", "2:4", "cusparselt", "csr"]),
        ("1:4", ["dense", "csr"]),
        ("balanced:32", ["dense", "balanced", "csr"]),
        ("tile-element:64", ["dense", "two-part", "csr"]),
        ("unstructured", ["dense", "csr"]),
        ("zeros", ["dense", "csr"]),
        ("dense", ["dense"]),
    ],
)
def test_a_pattern_goes_to_the_kernels_that_can_run_it(pattern, kernels):
    """These, in this order; any others name the pattern's family in their record."""
    chosen = candidates("all", pattern)
    of_family = [n for n, k in KERNELS.items() if pattern.split(":")[0] in k.families and n not in kernels]
    assert [c.kernel for c in chosen if c.kernel not in of_family] == kernels
    assert set(of_family) <= {c.kernel for c in chosen}
    assert {c.pattern for c in chosen[1:]} <= {pattern}


def test_kernels_for_few_tokens_are_left_out_of_all_where_there_are_many():
    assert "small-n" in [c.kernel for c in candidates(tokens=64)]
    assert "small-n" not in [c.kernel for c in candidates(tokens=65)]
    assert [c.kernel for c in candidates("small-n", tokens=65)] == ["dense", "small-n"]


def test_dense_is_always_there_and_first():
    assert [c.kernel for c in candidates(["csr"])] == ["dense", "csr"]
    assert [c.kernel for c in candidates(["csr", "dense", "csr"])] == ["dense", "csr"]
    assert [c.kernel for c in candidates("stspmm")] == ["dense", "stspmm"]


def test_refusals_name_what_would_work():
    with pytest.raises(BadInput, match="got 'tilewise'; nearest: tile-wise"):
        candidates(["tilewise"])
    with pytest.raises(BadInput, match="2:4, cusparselt, csr can"):
        candidates(["stspmm"], "2:4")

from dataclasses import replace

import pytest

from prunecast.errors import BadInput
from prunecast.launch import USUAL
from prunecast.validation.case import LARGEST, check_case, parse_distribution
from prunecast.validation.records import read_runs
from prunecast.validation.suite import load_suite
from prunecast.validation.validate import bundled_records
from tests.validation.tiny_run import CASE

ONE = """
schema = 1
[[case]]
name = "o"
m = 64
k = 128
n = 32
pattern = "tile-wise:32"
sparsity = 0.5
kernels = ["stspmm"]
"""


def suite(tmp_path, text):
    path = tmp_path / "suite.toml"
    path.write_text(text)
    return load_suite(str(path))


def test_the_bundled_suite_has_what_it_promises():
    standard = load_suite("standard")
    burst = [case for case in standard.cases if case.conditions == USUAL]
    assert len(standard.cases) >= 400
    assert {kernel for case in standard.cases for kernel in case.kernels} >= {
        "dense",
        "csr",
        "tile-wise",
        "stspmm",
        "block-sparse",
        "2:4",
        "balanced",
        "small-n",
    }
    assert {case.n for case in burst} >= {1, 16384}
    assert {case.sparsity for case in burst} >= {0.0, 0.98}
    assert {case.distribution for case in burst} >= {"equal", "random", "ramp", "one-full", "lognormal:1.0"}
    uses = [case.use for case in standard.cases]
    assert 0.35 < uses.count("fit") / len(uses) < 0.65


def test_bundled_suites_are_those_that_records_measured():
    """Records name the suite by its fingerprint; a changed suite would be another one."""
    measured = {run.header.suite_fingerprint for run in read_runs(bundled_records()[0])}
    assert {load_suite(name).fingerprint for name in ("standard", "second", "third", "fourth")} <= measured


def test_what_a_case_leaves_out_has_defaults(tmp_path):
    (case,) = suite(tmp_path, ONE).cases
    assert (case.dtype, case.distribution, case.seed, case.conditions) == ("fp16", "equal", 1, USUAL)
    assert case.kernels == ("stspmm",)


def test_state_and_kernel_do_not_change_the_use(tmp_path):
    other = ONE.replace('name = "o"', 'name = "p"\nstate = "sustained"').replace('"stspmm"', '"csr"')
    assert suite(tmp_path, ONE).cases[0].use == suite(tmp_path, other).cases[0].use


def test_products_are_every_combination(tmp_path):
    text = """
schema = 1
[[product]]
shapes = [[64, 128], [128, 64]]
n = [1, 2, 3]
pattern = ["tile-wise:32"]
sparsity = [0.0, 0.5]
kernels = ["stspmm"]
"""
    cases = suite(tmp_path, text).cases
    assert len(cases) == 12
    assert {(case.m, case.k, case.n, case.sparsity) for case in cases} == {
        (m, k, n, s) for m, k in ((64, 128), (128, 64)) for n in (1, 2, 3) for s in (0.0, 0.5)
    }
    thinned = suite(tmp_path, text + "keep_one_in = 3\n").cases
    assert 0 < len(thinned) < 12
    assert set(thinned) < set(cases)


def test_a_value_without_sense_is_refused_though_nothing_with_it_is_drawn(tmp_path):
    text = """
schema = 1
[[product]]
shapes = [[64, 128]]
n = [1, 2]
pattern = ["tile-wise:32", "tile-wisp:32"]
kernels = ["stspmm"]
keep_one_in = 1000000
"""
    with pytest.raises(BadInput, match="product 1: unknown pattern 'tile-wisp:32'"):
        suite(tmp_path, text)


def test_parts_hold_every_case_once():
    standard = load_suite("standard")
    parts = [standard.part(i, 3) for i in (1, 2, 3)]
    assert sorted(str(c.key("")) for part in parts for c in part.cases) == sorted(
        str(c.key("")) for c in standard.cases
    )
    layers = [{case.layer for case in part.cases} for part in parts]
    assert not layers[0] & layers[1]


def test_every_part_holds_a_case():
    standard = load_suite("standard")
    count = len({case.layer for case in standard.cases})
    assert standard.part(count, count + 1).cases
    with pytest.raises(BadInput, match=f"holds no row: there are rows of {count} layers"):
        standard.part(count + 1, count + 1)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (("schema = 1", "schema = 2"), "schema must be 1"),
        (("sparsity = 0.5", "sparsity = 1.5"), "sparsity must be in [0, 1)"),
        (("m = 64", "m = 0"), "m must be at least 1"),
        (("m = 64", "m = 4294967296"), "m * k and n must be at most 2147483647, got 4294967296x128x32"),
        (("m = 64", "m = 64\nseed = -1"), "seed must be 0 or more, got -1"),
        (('"tile-wise:32"', '"tile-wisp:32"'), "case 'o': unknown pattern 'tile-wisp:32'"),
        (('"tile-wise:32"', '"tile-wise:0"'), "case 'o': pattern like tile-wise:128: wanted height from 1"),
        (("m = 64", "rows = 64"), "unknown key 'rows'"),
        (("m = 64\n", ""), "m is missing"),
        (("n = 32", 'n = "many"'), "n must be a whole number"),
        (('["stspmm"]', '["fastest"]'), "unknown kernel 'fastest'"),
        (('["stspmm"]', '["cusparselt"]'), "no measured kernel 'cusparselt'; known: dense, tile-wise, "),
        (('["stspmm"]', '["dense", "two-part"]'), "no measured kernel 'two-part'"),
        (("schema = 1", "schema = 1\nthreads = 4"), "unknown key 'threads'"),
        (('kernels = ["stspmm"]', 'kernels = ["stspmm"]\nstate = "idle"'), "state must be one of"),
        (('kernels = ["stspmm"]', 'kernels = ["stspmm"]\nuse = "both"'), "use must be one of"),
        (
            ('kernels = ["stspmm"]', 'kernels = ["stspmm"]\ndistribution = "skewed"'),
            "distribution must be one of",
        ),
    ],
)
def test_bad_suites_are_refused_by_name(tmp_path, change, named):
    with pytest.raises(BadInput, match=r".*") as refusal:
        suite(tmp_path, ONE.replace(*change))
    assert named in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "last", "beyond"),
    [
        *((side, 1, 0) for side in ("m", "k", "n")),
        ("m", LARGEST // CASE.k, LARGEST // CASE.k + 1),
        ("n", LARGEST, LARGEST + 1),
        ("seed", 0, -1),
        ("sparsity", 0.0, -0.01),
        ("sparsity", 0.999, 1.0),
        ("kernels", ("stspmm",), ()),
    ],
)
def test_numbers_of_a_case_have_limits(name, last, beyond):
    allowed = replace(CASE, **{name: last})
    assert check_case(allowed, "case 1") is allowed
    with pytest.raises(BadInput, match=f"^case 1: .*{name}"):
        check_case(replace(CASE, **{name: beyond}), "case 1")


def test_a_case_twice_is_refused(tmp_path):
    with pytest.raises(BadInput, match="twice"):
        suite(tmp_path, ONE + ONE.replace("schema = 1", ""))


def test_unknown_suites_are_refused():
    with pytest.raises(BadInput, match=r"known: .*second, standard.*; or give the path of a .toml file"):
        load_suite("none")


def test_a_file_of_any_name_is_a_suite(tmp_path):
    path = tmp_path / "mine"
    path.write_text(ONE)
    assert load_suite(str(path)).cases == suite(tmp_path, ONE).cases
    with pytest.raises(BadInput, match="wanted a suite, got a folder"):
        load_suite(str(tmp_path))


def test_distributions_are_read():
    assert parse_distribution("lognormal:0.5") == ("lognormal", 0.5)
    assert parse_distribution("ramp") == ("ramp", 0.0)
    with pytest.raises(BadInput):
        parse_distribution("lognormal:much")

"""Sizes of the images that a model reads, as stated for its inputs."""

import pytest

from prunecast.errors import BadInput
from prunecast.workload.conv_settings import ConvSettings, image_sizes

INPUTS = ("left", "right")


@pytest.mark.parametrize(
    ("stated", "sizes"),
    [
        ((), {}),
        ("20x30", {"left": (20, 30), "right": (20, 30)}),
        ("right=20x30", {"right": (20, 30)}),
        (["left=20x30", "right=4x5"], {"left": (20, 30), "right": (4, 5)}),
        (["20x30", "right=4x5"], {"left": (20, 30), "right": (4, 5)}),
        (["right=4x5", "re:.=20x30"], {"left": (20, 30), "right": (20, 30)}),
    ],
)
def test_the_last_size_that_names_an_input_counts(stated, sizes):
    assert image_sizes(ConvSettings(input_size=stated), INPUTS) == sizes


@pytest.mark.parametrize(
    ("stated", "inputs", "words"),
    [
        ("middle=20x30", INPUTS, r"wanted HxW or NAME=HxW with an input of the file \(left, right\)"),
        ("20x30", (), "no input of the file is an image"),
        ("20", INPUTS, "wanted HxW or SELECTOR=HxW, got '20'"),
        ("1234567x1", INPUTS, "wanted HxW or SELECTOR=HxW, got '1234567x1'"),
    ],
)
def test_a_size_of_no_input_is_refused(stated, inputs, words):
    with pytest.raises(BadInput, match=words):
        image_sizes(ConvSettings(input_size=stated), inputs)

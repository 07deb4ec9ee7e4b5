"""Which blocks of a launch are there before the launch before it ends."""

import pytest

from prunecast.hardware.placement import resident_share


def share(columns: tuple[int, ...], fit: int, sms: int) -> float:
    return resident_share(columns, fit, sms, column_cycles=10.0, start_cycles=500.0)


@pytest.mark.parametrize(
    ("blocks", "fit", "expected"), [(66, 1, 1.0), (80, 1, 52 / 80), (172, 2, 92 / 172), (300, 2, 228 / 300)]
)
def test_equal_blocks_find_what_room_is_left(blocks: int, fit: int, expected: float) -> None:
    assert share((64,) * blocks, fit, 132) == pytest.approx(expected)


def test_short_blocks_give_their_room_to_the_next_launch_while_a_long_one_runs() -> None:
    assert share((200, *(100,) * 79), 1, 132) == 1.0
    assert share((200, *(100,) * 199), 2, 132) == 1.0


def test_blocks_that_end_too_late_for_it_do_not() -> None:
    """149 columns end 510 cycles, 160 end 400 before the longest block; 28 blocks of 80 want their room."""
    assert share((200, *(149,) * 79), 1, 132) == 1.0
    late = (200, *(199,) * 60, *(160,) * 19)
    assert share(late, 1, 132) == pytest.approx(52 / 80)


def test_nobody_waits_for_a_short_block_that_is_late() -> None:
    """The last of four finds room 100 cycles before the longest ends, and has time enough."""
    assert share((100, 90, 20, 20), 1, 5) == 1.0
    assert share((100, 90, 90, 80), 1, 5) == pytest.approx(1 / 4)


def test_more_blocks_than_room_start_one_after_the_other() -> None:
    assert share(tuple(range(300, 0, -1)), 1, 132) == pytest.approx(96 / 300)

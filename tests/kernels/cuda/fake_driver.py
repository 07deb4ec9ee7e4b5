"""A driver that keeps what it is asked, instead of a GPU."""

import ctypes
from typing import NamedTuple

import pytest

from prunecast.kernels.device import launch
from prunecast.kernels.tile.cuda import operator as tile_operator

NO_CONTEXT = 201


class Launched(NamedTuple):
    """One launch, as the driver sees it."""

    function: int
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared_bytes: int
    stream: int | None
    overlaps: bool
    arguments: tuple[bytes, ...]
    """The first bytes of each."""


class FakeDriver:
    """Answers `statuses` in turn, then 0; reads so many bytes of every argument of a launch.

    `bytes_of` is for functions with other arguments, by their handles.
    """

    def __init__(self, *argument_bytes: int, statuses: tuple[int, ...] = ()) -> None:
        self.argument_bytes, self.statuses = argument_bytes, list(statuses)
        self.bytes_of: dict[int, tuple[int, ...]] = {}
        self.launched: list[Launched] = []
        self.maps = 0

    def cuLaunchKernelEx(self, config, function, addresses, extra):  # noqa: N802
        """Its arguments are read now, as by the driver."""
        assert extra is None
        given, attributes = config._obj, config._obj.attributes
        overlaps = given.attribute_count == 1 and (attributes[0].id, attributes[0].value[0]) == (6, 1)
        assert given.attribute_count == overlaps
        sizes = self.bytes_of.get(function.value, self.argument_bytes)
        found = tuple(ctypes.string_at(address, size) for address, size in zip(addresses, sizes, strict=True))
        self.launched.append(
            Launched(
                function.value,
                tuple(given.grid),
                tuple(given.block),
                given.shared_bytes,
                given.stream,
                overlaps,
                found,
            )
        )
        return self._answer()

    def cuTensorMapEncodeTiled(  # noqa: N802
        self, to, kind, rank, pointer, sizes, strides, box, steps, *modes
    ):
        """A map that says what it is of."""
        self.maps += 1
        numbers = (kind, rank, pointer.value, *sizes, *strides, *box, *steps, *modes)
        ctypes.memmove(to, (ctypes.c_uint64 * len(numbers))(*numbers), 8 * len(numbers))
        return self._answer()

    def _answer(self):
        return self.statuses.pop(0) if self.statuses else 0


def install(
    monkeypatch: pytest.MonkeyPatch, *argument_bytes: int, statuses: tuple[int, ...] = ()
) -> FakeDriver:
    """In place of the real one."""
    found = FakeDriver(*argument_bytes, statuses=statuses)
    monkeypatch.setattr(launch, "driver", lambda: found)
    monkeypatch.setattr(tile_operator, "driver", lambda: found)
    return found

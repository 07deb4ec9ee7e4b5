"""The engine and its slow twin agree on every number they report, cycle for cycle, on random launches."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.naive.engine_adapter import simulate_fast
from tests.naive.programs import register_kernels, ring_kernels, shared_kernels
from tests.naive.simulator import simulate_naively
from tests.naive.works import machines, works

KINDS = {"ring": ring_kernels, "shared": shared_kernels, "register": register_kernels}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_engine_and_twin_agree(kind: str, data: st.DataObject) -> None:
    machine = data.draw(machines())
    kernel = data.draw(KINDS[kind]())
    work = data.draw(works(kernel, machine))
    assert simulate_fast(machine, kernel, work) == simulate_naively(machine, kernel, work)

"""`Driver` against a made-up NVML, which writes its answers as the C library does."""

import contextlib
import os

import pytest

from prunecast.errors import BadInput
from prunecast.validation.measure.driver import Driver

NUMBERS = {
    ("nvmlDeviceGetPowerUsage",): 123_456,
    ("nvmlDeviceGetTemperature", 0): 55,
    ("nvmlDeviceGetCurrentClocksThrottleReasons",): 0x4 | 0x40,
    ("nvmlDeviceGetEnforcedPowerLimit",): 700_000,
    ("nvmlDeviceGetClockInfo", 2): 3201,
}
"""Query and its arguments between device and result -> number. All other queries fail."""


class Nvml:
    busy_percent = 0
    processes = ()

    def __getattr__(self, name):
        def answer(device, *rest):
            number = NUMBERS.get((name, *rest[:-1]))
            if number is None:
                return 3
            rest[-1]._obj.value = number
            return 0

        return answer

    def nvmlDeviceGetUtilizationRates(self, device, rates):  # noqa: N802
        rates._obj[0] = self.busy_percent
        return 0

    def nvmlDeviceGetName(self, device, text, size):  # noqa: N802
        assert len(text) == size.value
        text.value = b"NVIDIA H200"
        return 0

    def nvmlSystemGetDriverVersion(self, text, size):  # noqa: N802
        assert len(text) == size.value
        text.value = b"580.1"
        return 0

    def nvmlDeviceGetComputeRunningProcesses_v3(self, device, count, entries):  # noqa: N802
        assert len(entries) == count._obj.value
        for entry, pid in zip(entries, self.processes, strict=False):
            entry.pid = pid
        count._obj.value = len(self.processes)
        return 0


@pytest.fixture
def driver():
    driver = Driver()
    driver._library, driver._device = Nvml(), None
    return driver


def test_numbers_have_the_units_of_their_names(driver):
    assert driver.facts() == (123.456, 55.0, "power cap, thermal, hardware")
    assert driver.describe() == {
        "driver": "580.1",
        "name": "NVIDIA H200",
        "power_limit_w": 700.0,
        "memory_clock_mhz": 3201.0,
    }


def test_what_nvml_cannot_answer_is_none(driver):
    assert driver.energy_mj() is None
    driver._library = None
    assert driver.facts() == (None, None, "unknown")
    driver.check_idle()


def test_a_busy_gpu_is_refused(driver):
    driver.check_idle()
    driver._library.busy_percent = 30
    with pytest.raises(BadInput, match="it was busy 30 % of the last second"):
        driver.check_idle()


def test_a_limit_of_the_load_is_not_busy(driver):
    for percent, is_refused in ((5, False), (6, True)):
        driver._library.busy_percent = percent
        with pytest.raises(BadInput) if is_refused else contextlib.nullcontext():
            driver.check_idle()


@pytest.mark.parametrize("others", [(), (1,), (7, 1)])
def test_only_another_process_on_the_gpu_is_refused(driver, others):
    driver._library.processes = (os.getpid(), *others)
    refused = pytest.raises(BadInput, match=f"process {others[0]} computes on it") if others else None
    with refused or contextlib.nullcontext():
        driver.check_idle()


def test_without_nvml_nothing_is_known(driver):
    driver._library = None
    assert driver.describe() == {
        "driver": "unknown",
        "name": "unknown",
        "power_limit_w": None,
        "memory_clock_mhz": None,
    }


@pytest.mark.parametrize(
    ("bits", "words"),
    [
        (0, "none"),
        (0x1, "none"),
        (0x4, "power cap"),
        (0x8 | 0x80, "hardware slowdown, power brake"),
        (0x20, "thermal, software"),
    ],
)
def test_throttle_reasons_are_the_bits_of_nvml(driver, monkeypatch, bits, words):
    """Bits of nvmlClocksEventReasons in NVIDIA's nvml.h; 0x1 is an idle GPU."""
    monkeypatch.setitem(NUMBERS, ("nvmlDeviceGetCurrentClocksThrottleReasons",), bits)
    assert driver.facts().throttle == words

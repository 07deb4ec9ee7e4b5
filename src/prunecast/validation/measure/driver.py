"""Read the state of the GPU from the driver: name, power, temperature, throttling and other processes."""

import ctypes
import os
from typing import Any, NamedTuple

from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec

_REASONS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "thermal, software",
    0x40: "thermal, hardware",
    0x80: "power brake",
}
"""Bits of nvmlDeviceGetCurrentClocksEventReasons that slow a working GPU (NVML API reference)."""
HOT_REASONS = ("hardware slowdown", "thermal, software", "thermal, hardware", "power brake")
"""Throttle reasons that make a measurement useless. The power cap is expected in the state `sustained`."""
_GPU_TEMPERATURE = 0
_MEMORY_CLOCK = 2
"""Values of the C enumerations `nvmlTemperatureSensors_t` and `nvmlClockType_t` (NVML API reference)."""
_BUSY_SHARE = 5
"""GPU utilization in percent of the last second, above which the GPU is busy. Kind: choice."""


class DriverFacts(NamedTuple):
    """Power, temperature and throttle reasons that the driver reports at one moment."""

    power_w: float | None
    temperature_c: float | None
    throttle: str


class Driver:
    """Queries about device 0 to the driver, through the C interface of NVML.

    If NVML is not installed, every result is None, `unknown` or empty.
    """

    def __init__(self) -> None:
        self._library, self._device = _open()

    def facts(self) -> DriverFacts:
        """Return power (W), temperature (degrees Celsius) and throttle reasons at this moment."""
        power = self._number("nvmlDeviceGetPowerUsage", ctypes.c_uint)
        celsius = self._number("nvmlDeviceGetTemperature", ctypes.c_uint, _GPU_TEMPERATURE)
        bits = self._number("nvmlDeviceGetCurrentClocksThrottleReasons", ctypes.c_ulonglong)
        return DriverFacts(None if power is None else power * 1e-3, celsius, _reasons(bits))

    def energy_mj(self) -> float | None:
        """Return the energy in mJ since the driver was loaded, or None if it is not available."""
        return self._number("nvmlDeviceGetTotalEnergyConsumption", ctypes.c_ulonglong)

    def describe(self) -> dict[str, Any]:
        """Return driver version, name, power limit (W) and memory clock (MHz), for the header of a record."""
        limit = self._number("nvmlDeviceGetEnforcedPowerLimit", ctypes.c_uint)
        return {
            "driver": self._text("nvmlSystemGetDriverVersion", device=False),
            "name": self._text("nvmlDeviceGetName"),
            "power_limit_w": None if limit is None else limit * 1e-3,
            "memory_clock_mhz": self._number("nvmlDeviceGetClockInfo", ctypes.c_uint, _MEMORY_CLOCK),
        }

    def check_idle(self) -> None:
        """Raise BadInput if another process computes on the GPU, or if the GPU is busy."""
        others = [pid for pid in self._processes() if pid != os.getpid()]
        if others:
            raise BadInput(f"the GPU must be idle to be measured, process {others[0]} computes on it")
        shares = self._filled("nvmlDeviceGetUtilizationRates", (ctypes.c_uint * 2)())
        if shares is not None and shares[0] > _BUSY_SHARE:
            raise BadInput(
                f"the GPU must be idle to be measured, it was busy {shares[0]} % of the last second"
            )

    def _number(self, name: str, kind: Any, *before: int) -> float | None:
        """Return a number from the NVML function `name`, or None if NVML cannot provide it.

        Parameters
        ----------
        kind : ctypes type of the number, to which NVML gets a pointer as the last argument
        before : arguments between the device and this pointer
        """
        value = self._filled(name, kind(), *before)
        return None if value is None else float(value.value)

    def _text(self, name: str, *, device: bool = True) -> str:
        text = ctypes.create_string_buffer(96)
        if self._library is None:
            return "unknown"
        first = (self._device,) if device else ()
        status = getattr(self._library, name)(*first, text, ctypes.c_uint(len(text)))
        return text.value.decode() if status == 0 else "unknown"

    def _processes(self) -> list[int]:
        count, entries = ctypes.c_uint(64), (_Process * 64)()
        ask = getattr(self._library, "nvmlDeviceGetComputeRunningProcesses_v3", None)
        if ask is None or ask(self._device, ctypes.byref(count), entries) != 0:
            return []
        return [entries[i].pid for i in range(count.value)]

    def _filled(self, name: str, result: Any, *before: int) -> Any:
        """Call the NVML function `name` with a pointer to `result`, and return `result`; None on failure.

        `before` are the arguments between the device and this pointer.
        """
        if self._library is None:
            return None
        status = getattr(self._library, name)(self._device, *before, ctypes.byref(result))
        return result if status == 0 else None


class _Process(ctypes.Structure):
    """C structure `nvmlProcessInfo_t`: a process that uses the GPU."""

    _fields_ = [
        ("pid", ctypes.c_uint),
        ("memory", ctypes.c_ulonglong),
        ("instance", ctypes.c_uint),
        ("compute", ctypes.c_uint),
    ]


def check_same_gpu(gpu: GpuSpec, name: str, sm_count: int, capability: str) -> None:
    """Raise BadInput unless spec and device have the same number of SMs and the same compute capability."""
    wanted = (gpu.sm_count, str(gpu.compute_capability))
    if (sm_count, capability) != wanted:
        raise BadInput(
            f"spec {gpu.name} has {wanted[0]} SMs of compute capability {wanted[1]}, the device is {name!r} "
            f"with {sm_count} of {capability}"
        )


def _reasons(bits: float | None) -> str:
    if bits is None:
        return "unknown"
    found = [name for bit, name in _REASONS.items() if int(bits) & bit]
    return ", ".join(found) or "none"


def _open() -> tuple[Any, Any]:
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None, None
    device = ctypes.c_void_p()
    if library.nvmlInit_v2() != 0 or library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) != 0:
        return None, None
    return library, device

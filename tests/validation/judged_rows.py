"""Judged rows made up for tests: no plan, no engine."""

from prunecast.hardware import load_gpu
from prunecast.validation.case import Case
from prunecast.validation.judged import Judged, Predicted
from prunecast.validation.records import Measurement
from prunecast.validation.validate import Validation

__all__ = ["judged_row", "validation_of"]


def judged_row(measured_us, predicted_us, *, kernel="stspmm", use="judge", clock=(1600, 1600), **case):
    """One row; `clock` is measured and predicted, in MHz."""
    fields = {"m": 1024, "k": 1024, "n": 1024, "pattern": "tile-wise:128", "sparsity": 0.75} | case
    name = f"{kernel} {fields['pattern']} {fields['sparsity']} {measured_us} {fields['n']}"
    full = Case(name=name, dtype="fp16", kernels=(kernel,), use=use, **fields)
    measured = Measurement(case=full, kernel=kernel, seconds=measured_us * 1e-6, clock_mhz=clock[0])
    seconds = predicted_us * 1e-6
    predicted = Predicted(seconds, seconds * clock[1] * 1e6, clock[1], "tensor")
    return Judged(measured=measured, predicted={"simulator": predicted}, imbalance=1.0, same_plan=True)


def validation_of(*rows):
    return Validation(gpu=load_gpu("h200-sxm"), engines=("simulator",), rows=rows, records=())

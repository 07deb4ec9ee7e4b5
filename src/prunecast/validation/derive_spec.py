"""Derive the quantities of a GPU spec, and a complete spec file, from raw results of microbenchmarks.

Only `derive` converts raw results to quantities. A quantity that was not measured keeps the value and the
source of the base spec.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from prunecast.arguments import checked
from prunecast.codesign.result import Result
from prunecast.errors import BadInput, short_text
from prunecast.files import MIB, parse_json, read_bytes
from prunecast.hardware import GpuSpec, gpu_names, load_gpu
from prunecast.hardware.load import parse_spec, spec_text
from prunecast.hardware.spec import quantity_units
from prunecast.text import Cells
from prunecast.version import headed

RAW_SCHEMA = 1
LARGEST_RAW = 16 * MIB
LONGEST_TEXT = 200
LARGEST = 1e18
Raw = Mapping[str, Mapping[str, Any]]
USUAL_BASE = "h200-sxm"
"""Base spec for raw results that do not name their device."""


class Derived(NamedTuple):
    """Value of one measured quantity, and a description of the measurement."""

    value: float | int
    how: str
    """Description of the measurement, for the source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedSpec(Result):
    """Measured quantities of a GPU, and the spec file with them.

    Parameters
    ----------
    base : name of the spec that provides the quantities that were not measured
    spec : path of the written file
    quantities : name of each measured quantity -> its value and the description of the measurement
    """

    base: str
    spec: str
    quantities: Mapping[str, Derived]

    def document(self) -> dict[str, Any]:
        """Return the JSON object of `prunecast calibrate --json`."""
        return headed({"base": self.base, "spec": self.spec, "quantities": self.frame_rows()})

    def frame_rows(self) -> list[dict[str, Any]]:
        """Return a row for each quantity: its name, value and measurement."""
        return [{"quantity": name, **found._asdict()} for name, found in self.quantities.items()]

    def cells(self) -> list[Cells]:
        """Return the rows of the printed table, as texts."""
        return [{**row, "value": f"{row['value']:.4g}"} for row in self.frame_rows()]

    @property
    def notes(self) -> tuple[str, ...]:
        """One line about the origin of the quantities that were not measured."""
        return (f"what was not measured has the numbers of {self.base}",)


@checked
def derive(raw: Raw, base: str = USUAL_BASE) -> dict[str, Derived]:
    """Return a dict from name to value, with all quantities of a spec that can be derived from raw results.

    Groups of microbenchmarks that are missing in `raw`, or failed, give no quantities.

    Parameters
    ----------
    raw : name of a group -> name of a result -> number
    base : name or path of the spec with the quantities that no microbenchmark measures: FMA per clock of
        tensor cores, and SMs and clock where `raw` does not contain them

    Raises
    ------
    BadInput : a group lacks a number, or contains an impossible one
    """
    found: dict[str, Derived] = {}
    near = load_gpu(base)
    for group, rules in (
        ("latency", _latency),
        ("bandwidth", _bandwidth),
        ("kept", _kept),
        ("tensor", partial(_tensor, near=near)),
        ("waiting", partial(_waiting, near=near)),
    ):
        if group not in raw or "failed" in raw[group]:
            continue
        _check_numbers(group, raw[group], "raw numbers")
        try:
            found |= rules(raw[group])
        except KeyError as missing:
            raise BadInput(f"raw numbers: group {group} lacks {missing}") from None
        except (ValueError, ZeroDivisionError, OverflowError) as error:
            raise BadInput(f"raw numbers: group {group} makes no sense: {error}") from None
    return found


def _latency(r: Mapping[str, Any]) -> dict[str, Derived]:
    """Return latencies in SM cycles; raw numbers are cycles of one read in a chain of dependent reads."""
    chain = "dependent reads by one thread"
    found = {
        "shared_latency_cycles": Derived(round(r["shared_cycles"]), chain),
        "l1_latency_cycles": Derived(round(r["l1_cycles"]), chain),
    }
    if "l2_cycles_8_mib" in r:
        found["l2_latency_cycles"] = Derived(round(r["l2_cycles_8_mib"]), f"{chain} past the L1, 8 MiB")
        found["dram_latency_cycles"] = Derived(
            round(r["dram_cycles"]), f"{chain}, first walk through 512 MiB in steps of 4 KiB"
        )
    return found


def _bandwidth(r: Mapping[str, Any]) -> dict[str, Derived]:
    """Return rates of L2 and DRAM in bytes per second; `read_N_mib` are the rates of reads of N MiB."""
    reads = {
        int(m.group(1)): float(value)
        for key, value in r.items()
        if (m := re.fullmatch(r"read_(\d+)_mib", key))
    }
    fastest = max(reads.values())
    # Scattered reads: sequential ones would leave a part of the data in L2.
    scattered = [float(value) for key, value in r.items() if key.startswith("dram_read_")]
    from_dram = max(scattered, default=float(r["read_512_mib"]))
    return {
        "l2_bytes_per_s": Derived(
            fastest, "all SMs read a footprint that fits, 16 bytes a lane, the best of sizes"
        ),
        "dram_bytes_per_s": Derived(from_dram, "reads of more than the L2, the best of bytes in flight"),
        "dram_copy_bytes_per_s": Derived(r["copy_all_512_mib"], "a copy of 512 MiB, reads and writes"),
    }


def _kept(r: Mapping[str, Any]) -> dict[str, Derived]:
    """Return the usable L2 capacity in bytes: the mean of measurements with one and with all SMs reading.

    Data that many SMs read, such as tokens, occupy L2 twice, whereas weights are read by few SMs.
    """
    halves = [half for readers in ("one", "all") if (half := _half_kept(r, readers))]
    if len(halves) < 2:
        return {}
    how = (
        "half of so much that one SM reads is still there when it comes round, and of what all read: the mean"
    )
    return {"l2_usable_bytes": Derived(round(sum(halves) / 2), how)}


def _half_kept(r: Mapping[str, Any], readers: str) -> float:
    """Return the footprint in bytes of which half is still in L2 at its next use, by linear interpolation.

    Return 0 if the measured shares do not fall below one half. `readers` is `one` or `all` (SMs).
    """
    shares = sorted(
        (int(m.group(1)), float(value))
        for key, value in r.items()
        if (m := re.fullmatch(rf"kept_(\d+)_bytes_of_{readers}_share", key))
    )
    for (size, share), (larger, less) in pairwise(shares):
        if share >= 0.5 > less:
            return size + (larger - size) * (share - 0.5) / (share - less)
    return 0.0


def _tensor(r: Mapping[str, Any], near: GpuSpec) -> dict[str, Derived]:
    """Return the latency of wgmma and the share of the tensor peak that mma.sync reaches.

    An m64n256k16 has 262,144 FMA, 128 cycles of an SM of sm_90, which does 2048 fp16 FMA per cycle. An
    m16n8k16 has 2048 FMA, and two warps of a sub-partition issue one each in `cycles`.
    """
    found: dict[str, Derived] = {}
    wide, latency = r.get("wgmma_n256_1_groups_batch_64_cycles"), r.get("wgmma_n256_1_groups_batch_1_cycles")
    if wide and latency:
        found["warpgroup_latency_cycles"] = Derived(
            round(latency - 128 - 20),
            "one m64n256k16 with a wait behind it, less its 128 cycles and 20 of issue",
        )
    cycles = r.get("mma_dense_8_chains_8_warps_cycles")
    peak = near.tensor_fp16_fma_per_clk_per_sm / near.sub_partitions_per_sm
    if cycles and peak:
        share = 2048 / (cycles / 2) / peak
        found["mma_sync_share"] = Derived(
            round(min(share, 1.0), 3), "m16n8k16, 8 independent sums, two warps a sub-partition"
        )
    return found


def _waiting(r: Mapping[str, Any], near: GpuSpec) -> dict[str, Derived]:
    """Return latencies of barriers and stores in SM cycles, rates of stores, and the time of a graph launch.

    A store benchmark writes 64 KiB per SM. `issue_cycles` is the time until all stores are issued,
    `done_cycles` until they are complete.
    """
    store = "store_128_rows_1_blocks_pitch_512"
    everyone = [
        value for key, value in r.items() if re.fullmatch(r"store_128_rows_\d\d+_blocks.*issue_cycles", key)
    ]
    found = {
        "barrier_latency_cycles": Derived(
            round(r["barrier_round_trip_cycles"] / 2),
            "half of a round trip of two warps through two barriers",
        ),
        "sync_latency_cycles": Derived(
            round(r["sync_8_warps_cycles"]), "__syncthreads of 8 warps, back to back"
        ),
        "signal_latency_cycles": Derived(
            round(r["flag_round_trip_cycles"] / 2),
            "half of a round trip of release and acquire between two SMs",
        ),
        "block_start_cycles": Derived(
            round(r["blocks_8_waves_work_0_turnover_cycles"]),
            "from one block of 384 threads to the next on its SM",
        ),
        "store_bytes_per_clk_per_sm": Derived(
            round(65536 / r[f"{store}_issue_cycles"], 1), "eight warps of one SM hand 64 KB to L2"
        ),
        "store_latency_cycles": Derived(
            round(r[f"{store}_done_cycles"] - r[f"{store}_issue_cycles"]),
            "from the issue of 64 KB to their end",
        ),
        "graph_launch_s": Derived(
            r["graph_stamp_all_sms_200_kb_s"],
            "kernel of a block of 200 KB on every SM in a graph, back to back",
        ),
    }
    if everyone:
        found["l2_store_bytes_per_s"] = Derived(
            65536
            * r.get("sm_count", near.sm_count)
            / min(everyone)
            * r.get("max_clock_hz", near.max_clock_hz),
            "all SMs hand 64 KB each to L2",
        )
    return found


def read_raw(path: str | Path) -> dict[str, Any]:
    """Return the content of a file of raw results that `prunecast calibrate` wrote.

    Raises
    ------
    BadInput : the file is unreadable, or has another schema or content
    """
    content = read_bytes(path, "raw numbers of a calibration", most=LARGEST_RAW)
    try:
        document = parse_json(content)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path}: wanted raw numbers of a calibration, but: {error}") from None
    if not isinstance(document, dict):
        raise BadInput(f"{path}: wanted raw numbers of a calibration as a JSON object")
    if type(document.get("schema")) is not int or document["schema"] != RAW_SCHEMA:
        raise BadInput(
            f"{path}: raw numbers must be of schema {RAW_SCHEMA}, got {document.get('schema')!r:.80}"
        )
    _check_raw(document, f"{path}")
    return document


def _check_raw(document: Mapping[str, Any], where: str) -> None:
    """Raise BadInput unless the document has valid texts and groups of numbers.

    Date, driver and commit must be texts. Each group must have a failure reason, or contain only non-negative
    numbers and lists of such numbers (quantiles).
    """
    if "raw" not in document:
        raise BadInput(f"{where}: wanted raw numbers of a calibration under the key raw, which is missing")
    for name in ("date", "driver", "commit"):
        text = document.get(name)
        if not isinstance(text, str) or not text.isprintable() or len(text) > LONGEST_TEXT:
            raise BadInput(
                f"{where}: {name} must be a text of at most {LONGEST_TEXT} letters, got {text!r:.80}"
            )
    raw = document["raw"]
    if not isinstance(raw, dict) or not all(isinstance(group, dict) for group in raw.values()):
        raise BadInput(f"{where}: raw must be a table of groups of numbers, got {raw!r:.80}")
    for group, numbers in raw.items():
        if "failed" not in numbers:
            _check_numbers(group, numbers, where)


def _check_numbers(group: str, numbers: Mapping[str, Any], where: str) -> None:
    for name, value in numbers.items():
        each = value if isinstance(value, list) and name.endswith("_quantiles") else [value]
        if not all(type(x) in (int, float) and 0 <= x < LARGEST for x in each):
            raise BadInput(f"{where}: {group}.{name} must be a number from 0, got {short_text(value)}")


REPORTED = {
    "sm_count": "number of multiprocessors",
    "max_clock_hz": "highest SM clock",
    "power_limit_w": "enforced power limit",
    "l2_bytes": "size of the L2",
    "dram_bytes": "memory of the device",
    "dram_peak_bytes_per_s": "twice the memory clock times the bus width",
}
"""Quantity that the driver reports -> its description. A GPU file with `like` must contain all of these."""
SAME_MEMORY = 0.05
"""Largest relative difference of memory sizes of two GPUs of one model. Kind: choice, larger than the
fraction of memory that the driver reserves."""
RELATIVE = re.compile(r"(?m)^like = ")


def reported(device: Mapping[str, Any]) -> dict[str, Derived]:
    """Return a dict from name to value, with the quantities that the driver reports about a device."""
    known = {name: device.get(name) for name in REPORTED}
    return {
        name: Derived(value, f"{REPORTED[name]}, as the driver reports it")
        for name, value in known.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < LARGEST
    }


def base_for(device: Mapping[str, Any]) -> str:
    """Return the name of the known GPU that is most similar to a device.

    Of the GPUs with the same compute capability, it is the one with the nearest number of SMs; on a tie, that
    with the nearest memory size. GPUs whose spec is defined relative to another one (`like`) are not
    considered. The result is `USUAL_BASE` if the compute capability of the device is unknown.

    Raises
    ------
    BadInput : no GPU of this compute capability is known
    """
    capability = str(device.get("compute_capability", ""))
    if not capability:
        return USUAL_BASE
    whole = [load_gpu(name) for name in gpu_names() if not RELATIVE.search(spec_text(name))]
    alike = [gpu for gpu in whole if str(gpu.compute_capability) == capability]
    if not alike:
        raise BadInput(f"no GPU of compute capability {capability} has a whole file: give --gpu")

    def distance(gpu: GpuSpec) -> tuple[int, float]:
        away = abs(gpu.sm_count - int(device.get("sm_count") or 0))
        return away, abs(gpu.dram_bytes - float(device.get("dram_bytes") or 0.0))

    return min(alike, key=distance).name


def is_of_device(gpu: GpuSpec, device: Mapping[str, Any]) -> bool:
    """Return True if a spec describes the device: equal compute capability and SMs, memory within 5 %."""
    memory = device.get("dram_bytes") or gpu.dram_bytes
    return (
        str(device.get("compute_capability")) == str(gpu.compute_capability)
        and device.get("sm_count") == gpu.sm_count
        and abs(memory / gpu.dram_bytes - 1.0) <= SAME_MEMORY
    )


@checked
def spec_file(base: str, document: Mapping[str, Any], *, name: str) -> str:
    """Return the TOML text of a GPU spec with the measured quantities.

    If the measured device is the GPU of the base spec, the text is that of the base, with value, kind and
    source of every measured quantity replaced. For another device, the text refers to the base with `like`
    and contains only the quantities that were measured or that the driver reports; all others come from the
    base and are guesses.

    Parameters
    ----------
    base : name or path of the spec that provides all other quantities
    document : result of `read_raw`
    name : name of the new spec

    Raises
    ------
    BadInput : the name has unprintable characters, or the numbers do not make a valid spec
    """
    if not name.isprintable():
        raise BadInput(f"the name of a spec must be printable, got {name!r:.80}")
    _check_raw(document, "document")
    device = document.get("device")
    by = f"own measurement {document['date']}, driver {document['driver']}, commit {document['commit']}"
    is_known = isinstance(device, dict) and bool(device.get("compute_capability"))
    if is_known and not is_of_device(load_gpu(base), document["device"]):
        return _like_base(base, document, name, by)
    text = re.sub(r'(?m)^name = ".*"$', lambda _: f"name = {_quoted(name)}", spec_text(base), count=1)
    for quantity, (value, how) in derive(document["raw"], base).items():
        block = rf'(?ms)^\[{quantity}\]\nvalue = .*?\nunit = "[^"]*"\n.*?(?=\n\[|\n# |\Z)'
        old = re.search(block, text)
        new = (
            f'[{quantity}]\nvalue = {_shown(value)}\nunit = "{quantity_units()[quantity]}"\n'
            f'kind = "measured"\nsource = {_quoted(f"{by}: {how}")}\n'
        )
        # The base may omit an optional quantity
        text = f"{text}\n{new}" if old is None else text[: old.start()] + new + text[old.end() :]
    text = text.rstrip("\n") + "\n"
    parse_spec(text.encode(), "the numbers give no spec")
    return text


def _like_base(base: str, document: Mapping[str, Any], name: str, by: str) -> str:
    """Return the text of a spec with the measured and the reported quantities, and a `like` to the base."""
    device, near = document["device"], load_gpu(base)
    capability = str(device["compute_capability"])
    if capability != str(near.compute_capability):
        raise BadInput(f"{base}: wanted a base of compute capability {capability}, that of the device")
    found = {**reported(device), **derive(document["raw"], base)}
    lines = [
        "schema = 1",
        f"name = {_quoted(name)}",
        f"title = {_quoted(str(device.get('name') or name))}",
        f'compute_capability = "{capability[:-1]}.{capability[-1]}"',
        f"like = {_quoted(base)}",
        *(_inline(quantity, value, "measured", f"{by}: {how}") for quantity, (value, how) in found.items()),
    ]
    if "l2_latency_cycles" in found:
        later = near.gather_latency_cycles - near.l2_latency_cycles
        gathered = round(found["l2_latency_cycles"].value + later)
        lines.append(_inline("gather_latency_cycles", gathered, "guess", f"as much above L2's as on {base}"))
    text = "\n".join(lines) + "\n"
    parse_spec(text.encode(), "the numbers of the device give no spec")
    return text


def _inline(quantity: str, value: float, kind: str, source: str) -> str:
    """Return the line of TOML that defines a quantity."""
    rest = f'unit = "{quantity_units()[quantity]}", kind = "{kind}", source = {_quoted(source)}'
    return f"{quantity} = {{ value = {_shown(value)}, {rest} }}"


def _shown(value: float) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _quoted(text: str) -> str:
    """Return printable text as a TOML string, which has the escapes of JSON."""
    return json.dumps(text, ensure_ascii=False)

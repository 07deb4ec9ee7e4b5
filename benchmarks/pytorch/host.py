"""What an eager call of TileSparseLinear costs the host, beside nn.Linear, and what its parts cost (us).

    python -m benchmarks.pytorch.host --out DIR [--gpu h200-sxm]

Medians of calls timed one by one; the GPU's queue is emptied every `QUEUE` calls, so that no call waits for
it. `first` is a call, tokens first, whose kind of input is new to the module, though its plan is not. Writes
DIR/torch-host.json.
"""

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.pytorch.linear import PATTERN, pruned
from prunecast.kernels.cuda.places import Place
from prunecast.torch import TileSparseLinear
from prunecast.torch.prepared import current_stream

CALLS, QUEUE, WARM = 2000, 50, 20
SHAPES = ((3072, 768), (768, 3072))
TOKENS = (8, 64, 197, 1000)


def host_us(call: Callable[[], object]) -> float:
    """Median over `CALLS` of what one call takes until it returns."""
    times = []
    for turn in range(CALLS + WARM):
        if turn % QUEUE == 0:
            torch.cuda.synchronize()
        began = time.perf_counter_ns()
        call()
        times.append(time.perf_counter_ns() - began)
    return sorted(times[WARM:])[CALLS // 2] / 1e3


def layers(m: int, k: int, gpu: str) -> dict[str, Any]:
    """nn.Linear with zeros, and the same in both layouts."""
    dense = pruned(m, k, torch.float16).eval()
    found: dict[str, Any] = {"linear": dense}
    for layout in ("tokens_first", "features_first"):
        found[layout] = TileSparseLinear.from_linear(
            dense, pattern=PATTERN, gpu=gpu, max_tokens=8192, layout=layout
        ).eval()
    return found


def rows(gpu: str) -> list[dict[str, Any]]:
    """One for each shape and number of tokens."""
    found = []
    for m, k in SHAPES:
        made = layers(m, k, gpu)
        for tokens in TOKENS:
            x = torch.randn(tokens, k, device="cuda", dtype=torch.float16)
            given = dict.fromkeys(made, x) | {"features_first": x.t().contiguous()}
            times = {name: host_us(partial(layer, given[name])) for name, layer in made.items()}
            first = host_us(partial(first_of_its_kind, made["tokens_first"], x))
            found.append({"m": m, "k": k, "tokens": tokens, **times, "first": first})
    return found


def first_of_its_kind(layer: TileSparseLinear, x: torch.Tensor) -> None:
    """A call for whose plan everything is there, but whose kind of input no call has had."""
    layer._calls.clear()
    layer(x)


def parts(gpu: str) -> dict[str, float]:
    """Host microseconds of a prepared call and of its pieces, 64 tokens; the last two end in the driver."""
    layer = layers(3072, 768, gpu)["tokens_first"]
    x = torch.randn(64, 768, device="cuda", dtype=torch.float16)
    y = layer(x)
    ((key, call),), (operator,) = layer._calls.items(), layer._operators.values()
    b = x.new_empty((768, 64))
    places = Place(b.data_ptr(), 128), Place(y.data_ptr(), 128)
    copy, stream = call._reading.copy, current_stream(0)
    pieces: dict[str, Callable[[], object]] = {
        "nothing, timed": lambda: None,
        "a call": lambda: layer(x),
        "forward": lambda: layer.forward(x),
        "find the call": lambda: (
            layer._calls.get((x.shape, x.stride(), x.dtype, x.device, *key[4:])),
            call.takes(x),
        ),
        "find the plan": lambda: layer._operator(64),
        "allocate B": lambda: x.new_empty((768, 64)),
        "allocate Y": lambda: call._new_y(x),
        "launch the copy": lambda: copy(x, b, stream),
        "launch the product": lambda: operator.enqueue(*places, stream),
    }
    return {name: host_us(piece) for name, piece in pieces.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--gpu", default="h200-sxm")
    given = parser.parse_args()
    torch.manual_seed(0)
    with torch.no_grad():
        record: dict[str, Any] = {"torch": torch.__version__, "gpu": torch.cuda.get_device_name()}
        record |= {"rows": rows(given.gpu), "parts": parts(given.gpu)}
    (given.out / "torch-host.json").write_text(json.dumps(record, indent=1))
    for row in record["rows"]:
        names = ("linear", "tokens_first", "features_first", "first")
        times = "".join(f"{name} {row[name]:6.1f}   " for name in names)
        print(f"{row['m']}x{row['k']}x{row['tokens']}".ljust(16), times)
    for name, us in record["parts"].items():
        print(f"{us:8.2f}  {name}")


if __name__ == "__main__":
    main()

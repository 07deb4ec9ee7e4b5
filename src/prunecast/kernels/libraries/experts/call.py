"""`fused_experts`: predict the time of a mixture-of-experts layer in an inference engine, without its router.

The engine sorts the tokens by expert and pads the tokens of each expert to whole tiles. Then a grouped launch
multiplies with the gate and up matrices of all experts, a second kernel applies the activation, another
grouped launch multiplies with the down matrices, and a last kernel adds the outputs of each token. The
weights of each expert that has a token are read from DRAM once.

The implementations (`FORMS`) are `vllm-triton` and `sglang-triton` (fitted), `torch-grouped` (CUTLASS in
torch, whose products were measured), and `grouped` (a guess, for other kernels of CUTLASS and of
TensorRT-LLM). The tiles of a form are in `tables/experts_tiles.csv`, its constants in `costs/sm_*.toml`.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from prunecast.errors import BadInput, check_choice
from prunecast.hardware.costs import Costs, load_costs
from prunecast.hardware.memory_pass import MemoryPass
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.libraries.call import LibraryCall
from prunecast.kernels.libraries.experts.routing import DEFAULT_ROUTING, Loads, expert_loads
from prunecast.kernels.libraries.library_tables import table
from prunecast.kernels.libraries.tiled import (
    Tile,
    TiledTime,
    TiledWork,
    operand_reads,
    rates_of,
    tiled_time,
)
from prunecast.plan.kernel_plan import DTYPE_BYTES

FORMS: Mapping[str, str] = {
    "vllm-triton": "triton",
    "sglang-triton": "triton",
    "grouped": "grouped",
    "torch-grouped": "torch",
}
"""Implementation (form) -> prefix of the names of its constants in `costs/sm_*.toml`."""


class ExpertLayer(NamedTuple):
    """Sizes of a mixture-of-experts layer, and the number of tokens of a pass."""

    experts: int
    per_token: int
    hidden: int
    width: int
    """Features between the products of an expert."""
    tokens: int
    routing: str = DEFAULT_ROUTING
    """Distribution of the tokens over the experts, as defined in `routing.py`."""
    gated: bool = True
    """True if each expert has a gate, an up and a down product; False if it has only an up and a down
    product."""

    @property
    def loads(self) -> Loads:
        """Number of tokens of each expert, (experts,) float64, ascending."""
        return expert_loads(self.experts, self.per_token, self.tokens, self.routing)


def fused_experts(
    layer: ExpertLayer,
    gpu: GpuSpec,
    *,
    form: str = "vllm-triton",
    dtype: str = "bf16",
    state: str = "burst",
    costs: Costs | Mapping[str, float] | None = None,
) -> LibraryCall:
    """Return the predicted time of a mixture-of-experts layer, without its router.

    Parameters
    ----------
    form : implementation, one of `FORMS`
    dtype : format of weights and activations
    state : `burst` or `sustained`, which selects the clock
    costs : constants of the implementation; None for the constants of the GPU's architecture

    Raises
    ------
    BadInput : a size is below 1, a token has more experts than the layer, the form or the routing is unknown,
        or the GPU has no tensor cores for the format
    """
    check_choice("form of experts", form, FORMS)
    if min(layer.hidden, layer.width, layer.tokens) < 1:
        raise BadInput(f"experts need hidden, width and tokens of at least 1, got {layer}")
    numbers = costs if costs is not None else load_costs(__package__, gpu.compute_capability)
    name, loads = FORMS[form], layer.loads
    places, element = float(loads.sum()), DTYPE_BYTES[dtype]
    wide = (2 if layer.gated else 1) * layer.width

    def moved(elements: float) -> float:
        share = numbers[f"{name}_pass_share"]
        return numbers[f"{name}_pass_s"] + MemoryPass(copied_bytes=elements * element / share).seconds(gpu)

    def product(m: int, k: int, read: float) -> TiledTime:
        work = grouped_work(loads, m, k, dtype, tile_of(form, layer), gpu, read=read)
        return tiled_time(work, rates_of(numbers, name), gpu, state=state)

    gate_up, down = product(wide, layer.hidden, layer.tokens), product(layer.hidden, layer.width, places)
    launch_s = numbers[f"{name}_launch_s"]
    parts = {
        "sort": numbers[f"{name}_sort_s"],
        "gate_up": launch_s + gate_up.seconds,
        "activation": moved(places * (wide + layer.width)),
        "down": launch_s + down.seconds,
        "sum": moved((places + layer.tokens) * layer.hidden),
    }
    longest = max(parts, key=parts.__getitem__)
    limits = {"gate_up": gate_up.bound, "down": down.bound, "sort": "latency"}
    bound = limits.get(longest, "dram")
    return LibraryCall.of_parts("experts", name, gpu, kernel=form, parts=parts, bound=bound)


def grouped_work(
    loads: Loads, m: int, k: int, dtype: str, tile: Tile, gpu: GpuSpec, *, read: float
) -> TiledWork:
    """Return the work of one grouped launch: A (m, k) of each expert times its tokens, padded to tiles.

    Parameters
    ----------
    loads : (experts,) number of tokens of each expert
    tile : tile of the kernel
    read : number of distinct activation rows (of k elements); each is read from DRAM once
    """
    element, active = DTYPE_BYTES[dtype], int(np.count_nonzero(loads))
    return TiledWork(
        tiles=float(np.ceil(loads / tile.tokens).sum()) * -(-m // tile.rows),
        tile=tile,
        reads=operand_reads(tile, gpu, swaps=False),
        k=k,
        dtype=dtype,
        dram_bytes=element * (float(active) * m * k + read * k + float(loads.sum()) * m),
        is_persistent=False,
    )


def tile_of(form: str, layer: ExpertLayer) -> Tile:
    """Return the tile that an implementation uses for the layer's number of tokens.

    Raises BadInput if `tables/experts_tiles.csv` contains no such tile.
    """
    limits = {"any": layer.tokens, "experts": layer.experts}
    for row in table("experts_tiles"):
        most = limits[row["most_tokens"]] if row["most_tokens"] in limits else int(row["most_tokens"])
        if row["form"] == form and layer.tokens <= most:
            return Tile(*(int(row[size]) for size in ("rows", "tokens", "k", "warps")))
    raise BadInput(f"tables/experts_tiles.csv: no tile of {form} for {layer.tokens} tokens")

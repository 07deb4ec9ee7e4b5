"""Content of a systems folder of AIConfigurator: the YAML file of a GPU, and tables of operator latencies.

The layout and the columns are those of aiconfigurator-core 0.12.0 (`systems/`): one file for each GPU, and
`data/GPU/FAMILY/BACKEND/VERSION/TABLE_perf.parquet`. Latencies are in milliseconds. Backend and version are
those of vLLM 0.24.0, for which AIConfigurator has its own tables; the column `kernel_source` is `prunecast`.
For a pruned model, rows have the sizes of the dense products and the times of the pruned ones.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

from prunecast.codesign.export.serving_times import SEQUENCES, ServingTimes
from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec
from prunecast.hardware.clock import sm_clock_hz
from prunecast.kernels.libraries.collectives.call import MOST_GPUS, collective
from prunecast.kernels.libraries.experts.call import ExpertLayer, fused_experts
from prunecast.workload.graph.runtimes import ELEMENT_BYTES

BACKEND, VERSION = "vllm", "0.24.0"
"""Inference engine and version for whose operators the tables are written."""
SOURCE = "prunecast"
DTYPE = "bfloat16"
"""AIConfigurator's name of a 16-bit format, used for fp16 too: both have the same times."""
JOINED = {"qkv": ("query", "key", "value"), "gate_up": ("gate", "up")}
"""Product of vLLM -> products of the model graph that vLLM joins to this one; their times are added."""
PROMPTS = (1, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
"""Tokens of a prompt in the table of attention."""
PROMPT_BATCHES = (1, 2, 4, 8, 16, 32)
CONTEXTS = (1, 15, 63, 127, 255, 511, 1023, 2047, 4095, 8191, 16383, 32767)
"""Cached tokens in the table of attention of one new token."""
BYTES = tuple(2**power for power in range(10, 29))
"""Sizes of the tensors in the table of all-reduces, in bytes."""
MS = 1e3
"""Milliseconds per second."""


class PerfTable(NamedTuple):
    """A table of the folder: family of operators, name of the table, and its rows."""

    family: str
    name: str
    rows: list[dict[str, Any]]


def system_name(gpu: GpuSpec) -> str:
    """Return the name of a GPU in AIConfigurator, such as `h100_sxm` for `h100-sxm`."""
    return gpu.name.replace("-", "_")


class Peaks(NamedTuple):
    """Peak rates of a GPU, from which AIConfigurator computes a lower bound for the time of each product."""

    flops_per_s: float
    bytes_per_s: float


def peaks(times: ServingTimes) -> Peaks:
    """Return the peak rates of the tensor cores and of DRAM to write for a model.

    AIConfigurator counts the operations and bytes of a product without pruning. It uses the time that they
    need at these rates as a lower bound of the product's time. A pruned product may be faster. For a pruned
    model, the rates are therefore raised until no predicted time is below its bound.
    """
    gpu = times.gpu
    found = Peaks(tensor_rate(gpu, gpu.tensor_bf16_fma_per_clk_per_sm), float(gpu.dram_peak_bytes_per_s))
    for row in _products(times) if times.is_pruned else ():
        m, n, k, seconds = row["m"], row["n"], row["k"], row["latency"] / MS
        moved = ELEMENT_BYTES * (m * n + n * k + m * k)
        found = Peaks(
            max(found.flops_per_s, 2.0 * m * n * k / seconds), max(found.bytes_per_s, moved / seconds)
        )
    return found


def system_yaml(gpu: GpuSpec, peak: Peaks) -> dict[str, Any]:
    """Return the description of a GPU and its node.

    From this description, AIConfigurator computes the time of moving tensors between products: the launch
    overhead, plus the bytes over the rate that a copy in DRAM reaches. Reserved memory is not predicted and
    is set to zero.
    """
    link = gpu.link_bytes_per_s or 0.0
    return {
        "data_dir": f"data/{system_name(gpu)}",
        "gpu": {
            "mem_bw": peak.bytes_per_s,
            "mem_bw_empirical_scaling_factor": gpu.dram_copy_bytes_per_s / peak.bytes_per_s,
            "mem_empirical_constant_latency": float(gpu.graph_launch_s),
            "mem_capacity": int(gpu.dram_bytes),
            "bfloat16_tc_flops": peak.flops_per_s,
            "int8_tc_flops": tensor_rate(gpu, gpu.tensor_int8_fma_per_clk_per_sm or 0),
            "fp8_tc_flops": tensor_rate(gpu, gpu.tensor_fp8_fma_per_clk_per_sm or 0),
            "power": float(gpu.power_limit_w),
            "sm_version": gpu.compute_capability,
        },
        "node": {
            "num_gpus_per_node": MOST_GPUS,
            "inter_node_bw": link,
            "intra_node_bw": link,
            "pcie_bw": link,
            "p2p_latency": float(gpu.graph_launch_s),
        },
        "misc": {"nccl_mem": {1: 0, 2: 0, 4: 0, 8: 0}, "other_mem": 0, "nccl_version": ""},
    }


def tensor_rate(gpu: GpuSpec, fma_per_clk: float) -> float:
    """Return the peak FLOP/s of the tensor cores at the SM clock of full load in short runs (`burst`).

    `fma_per_clk` is the number of multiply-adds per cycle and SM.
    """
    clock_hz = sm_clock_hz(gpu, tensor_duty=1.0, l2_bytes_per_clk_per_sm=0.0, state="burst")
    return 2.0 * fma_per_clk * gpu.sm_count * clock_hz


def tables(times: ServingTimes) -> list[PerfTable]:
    """Return the tables of a model. Raise BadInput if a product has different sizes in different layers."""
    if times.uneven:
        raise BadInput(
            f"{times.model}: sizes of {min(times.uneven)} differ between layers, and AIConfigurator reads "
            "one size for all: wanted --format llmservingsim, or parts removed without /uneven"
        )
    found = [
        PerfTable("gemm", "gemm", list(_products(times))),
        _attention(times, "context_attention", PROMPT_BATCHES, [(tokens, 0) for tokens in PROMPTS]),
        _attention(times, "generation_attention", SEQUENCES, [(1, cached) for cached in CONTEXTS]),
    ]
    if times.experts is not None:
        found.append(PerfTable("moe", "moe", list(_experts(times, times.experts))))
    if times.gpu.link_bytes_per_s:
        found.append(PerfTable("comm", "custom_allreduce", list(_sums(times.gpu))))
    return found


def documents(times: ServingTimes, found: Sequence[PerfTable]) -> dict[str, Any]:
    """Return relative path -> content, for each YAML file of the folder that contains the tables `found`."""
    system = system_name(times.gpu)
    files: dict[str, Any] = {
        f"{system}.yaml": system_yaml(times.gpu, peaks(times)),
        "query_versions.yaml": {
            "schema_version": 1,
            "defaults": {BACKEND: {"current": VERSION, "previous": None}},
        },
    }
    for table in found:
        path = f"data/{system}/{table.family}/{BACKEND}/{VERSION}/collection_meta.yaml"
        meta = files.setdefault(
            path,
            {
                "schema_version": 1,
                "provenance": "legacy",
                "runtime": {"framework": BACKEND, "version": VERSION},
                "tables": {},
            },
        )
        meta["tables"][f"{table.name}_perf"] = {"status": "complete"}
    return files


def _row(gpu: GpuSpec, op: str, seconds: float, **keys: Any) -> dict[str, Any]:
    return {
        "framework": BACKEND.upper(),
        "version": VERSION,
        "device": gpu.title,
        "op_name": op,
        "kernel_source": SOURCE,
        **keys,
        "latency": MS * seconds,
    }


def _products(times: ServingTimes) -> Iterator[dict[str, Any]]:
    """Yield a row for each size of a product: tokens (m), output features (n) and input features (k).

    If several products have the same size, the row has their mean time.
    """
    groups = {name: parts for name, parts in JOINED.items() if parts[0] in times.products}
    joined = {part for parts in groups.values() for part in parts}
    single = (part for part in times.products if part not in joined and "experts." not in part)
    groups |= {part: (part,) for part in single}
    alike: dict[tuple[int, int, int], list[float]] = {}
    for name, parts in groups.items():
        n, k = sum(times.products[part].m for part in parts), times.products[parts[0]].k
        if name == "head":
            pairs = zip(SEQUENCES, times.head_s.tolist(), strict=True)
        else:
            pairs = zip(times.columns.tolist(), times.sum_of(parts).tolist(), strict=True)
        for m, seconds in pairs:
            alike.setdefault((m, n, k), []).append(seconds)
    for (m, n, k), found in alike.items():
        yield _row(times.gpu, "gemm", sum(found) / len(found), gemm_dtype=DTYPE, m=m, n=n, k=k)


def _attention(
    times: ServingTimes, op: str, batches: Sequence[int], tokens: Sequence[tuple[int, int]]
) -> PerfTable:
    """Return a table of attention, with a row for each call, batch, and pair of new and cached `tokens`."""
    rows = []
    for shape, batch, (new, cached) in product(times.attention, batches, tokens):
        keys = {
            "batch_size": batch,
            "isl": new,
            "num_heads": shape.heads,
            "num_key_value_heads": shape.key_heads,
            "head_dim": shape.head_width,
            "beam_width": 1,
            "attn_dtype": DTYPE,
            "kv_cache_dtype": DTYPE,
            "step": cached,
            "window_size": shape.window,
        }
        rows.append(_row(times.gpu, op, times.call_seconds(shape, batch, new, cached), **keys))
    return PerfTable("attention", op, rows)


def _experts(times: ServingTimes, layer: ExpertLayer) -> Iterator[dict[str, Any]]:
    """Yield a row for the experts of a layer, for each routing distribution and number of tokens.

    The time includes sorting, products, activation and sum, but not the router. For pruned models, all
    distributions have the same times, since only one routing was predicted.
    """
    names = ("to_experts", "experts.gate", "experts.up", "gating", "experts.down", "from_experts")
    own = times.sum_of(names)
    for distribution in ("balanced", "power_law_1.01", "power_law_1.2"):
        routing = distribution.replace("power_law_", "power-law:")
        for place, tokens in enumerate(times.columns.tolist()):
            seconds = float(own[place])
            if not times.is_pruned:
                sized = layer._replace(tokens=tokens, routing=routing)
                seconds = fused_experts(sized, times.gpu, dtype="bf16").seconds
            keys = {
                "moe_dtype": DTYPE,
                "num_tokens": tokens,
                "hidden_size": layer.hidden,
                "inter_size": layer.width * times.gpus,
                "topk": layer.per_token,
                "num_experts": layer.experts,
                "moe_tp_size": times.gpus,
                "moe_ep_size": 1,
                "distribution": distribution,
            }
            yield _row(times.gpu, "moe", seconds, **keys)


def _sums(gpu: GpuSpec) -> Iterator[dict[str, Any]]:
    for gpus in (2, 4, 8):
        for size in BYTES:
            keys = {
                "allreduce_dtype": DTYPE,
                "num_gpus": gpus,
                "message_size": size // ELEMENT_BYTES,
                "backend": f"{BACKEND}_graph",
            }
            seconds = collective("all reduce", float(size), gpus, gpu).seconds
            yield _row(gpu, "all_reduce", seconds, **keys)

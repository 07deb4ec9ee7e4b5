"""`ServingTimes`: times of a model's parts by number of tokens. `PassPredictor`: time of a pass of any batch.

One call of `predict` predicts passes with the numbers of tokens in `SEQUENCES` and `PROMPTS`, dense or
pruned, so that all passes share the sparsity maps. Between these numbers, times are interpolated linearly.
The time of attention depends on the length of each sequence. It is predicted separately for each batch.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from prunecast.codesign.checked_settings import settings_of
from prunecast.codesign.predict import predict
from prunecast.codesign.prepare_job import workload_of
from prunecast.codesign.recipe_maps import recipe_of
from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec, load_gpu
from prunecast.kernels import KERNELS
from prunecast.kernels.libraries.attention.call import attention_call
from prunecast.kernels.libraries.attention.shape import Attention
from prunecast.kernels.libraries.experts.call import ExpertLayer
from prunecast.workload.engines import Progress, silent
from prunecast.workload.graph.config import node_of
from prunecast.workload.graph.model_graph import COLLECTIVES, ModelGraph
from prunecast.workload.graph.model_time import ModelTime
from prunecast.workload.layers import Source, name_of

FloatArray = npt.NDArray[np.float64]

SEQUENCES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Numbers of sequences in decode passes. Each sequence gets one token, so they are numbers of tokens too."""
PROMPTS = (384, 512, 1024, 2048, 4096, 8192, 16384)
"""Numbers of tokens in prefill passes, which process one prompt."""
CONTEXT = 1024
"""Cached tokens of each sequence in decode passes. Only attention, which is predicted separately, depends on
it."""
MOST_TOKENS = 2**22
"""Maximum number of tokens of a prefill or a decode in a batch. Kind: choice."""
_PART = re.compile(r"layers?(?:\.(?:\d+|window\d+))?\.(.+)")


class ProductSize(NamedTuple):
    """Output features (m) and input features (k) of a product in a layer, or of the output head."""

    m: int
    k: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ServingTimes:
    """Predicted seconds of the parts of a model on one GPU, for passes with different numbers of tokens.

    Parameters
    ----------
    model : name of the model
    gpu : the GPU
    gpus : number of GPUs that share the model; times are per GPU, without collectives such as all-reduces
    layers : number of layers
    columns : number of tokens of each predicted pass, ascending, (passes,)
    parts : part of a layer, such as `query` or `norm1` -> mean seconds per layer in each pass, (passes,).
        The time of a transpose belongs to the operation whose output is transposed; for the output of
        attention, it belongs to `output`
    outside : operation outside of layers, except the output head -> seconds in each pass, (passes,)
    head_s : seconds of the output head for each number of sequences in `SEQUENCES`
    products : product of a layer, or `head` -> its sizes
    uneven : products whose sizes differ between layers; `products` then has the sizes of the last layer
    experts : sizes of a mixture-of-experts layer, with the tokens of the first pass; None without experts
    active_experts : number of experts that get a token in each pass, (passes,)
    attention : attention call, with its numbers of sequences and tokens set to 1 -> number of layers with
        this call
    is_pruned : True if a layer runs a sparse kernel
    """

    model: str
    gpu: GpuSpec
    gpus: int
    layers: int
    columns: npt.NDArray[np.int64]
    parts: Mapping[str, FloatArray]
    outside: Mapping[str, FloatArray]
    head_s: FloatArray
    products: Mapping[str, ProductSize]
    uneven: frozenset[str]
    experts: ExpertLayer | None
    active_experts: FloatArray
    attention: Mapping[Attention, int]
    is_pruned: bool

    @classmethod
    def of(
        cls,
        weights: Source,
        *,
        gpu: str | GpuSpec,
        progress: Progress = silent,
        **settings: Any,
    ) -> Self:
        """Predict the passes of a model that generates text, and return their times.

        Parameters
        ----------
        weights, gpu, settings : as in `predict`, without tokens, workload and runtime. The runtime is
            `engine`. If no pattern, sparsity or kernels are given, the model is dense, or pruned as in its
            recipe

        Raises
        ------
        BadInput : in the same cases as `predict`; also if the model's graph is not known, or if it uses
            latent attention (MLA)
        """
        is_asked = any(settings.get(name) is not None for name in ("pattern", "sparsity", "kernels"))
        if not is_asked and recipe_of(weights) is None:
            settings["kernels"] = "dense"
        spec = load_gpu(gpu) if isinstance(gpu, str) else gpu
        decodes = [f"decode:{count}@{CONTEXT}" for count in SEQUENCES]
        workload = ",".join([*decodes, *(f"prefill:{count}" for count in PROMPTS)])
        settings |= {"gpu": spec, "workload": workload, "runtime": "engine"}
        loaded = workload_of(weights, settings_of(weights, settings))
        if not loaded.graphs:
            raise BadInput(f"{name_of(weights)}: wanted a model by name or folder whose graph is known")
        if any(o.elements_kept for o in loaded.graphs[0]):
            raise BadInput(f"{name_of(weights)}: latent attention (MLA) has no table in what is exported")
        table = predict(weights, progress=progress, crossovers=False, **settings)
        assert table.whole is not None
        times = [phase.best.time for phase in table.whole.phases]
        is_pruned = any(not KERNELS[kernel].is_baseline for kernel in table.fastest_kernels())
        return cls(
            model=name_of(weights),
            gpu=spec,
            gpus=table.whole.gpus,
            is_pruned=is_pruned,
            **_tables(loaded.graphs, times, [run.columns for run in loaded.passes]),
        )

    def attention_seconds(self, sequences: int, queries: int, cached: int) -> float:
        """Return the seconds of attention in all layers for `sequences` sequences of equal length.

        Parameters
        ----------
        queries : number of new tokens of each sequence
        cached : number of tokens of each sequence whose keys and values are in the cache
        """
        return sum(
            count * self.call_seconds(shape, sequences, queries, cached)
            for shape, count in self.attention.items()
        )

    def call_seconds(self, shape: Attention, sequences: int, queries: int, cached: int) -> float:
        """Return the seconds of one attention call.

        Parameters
        ----------
        shape : attention call with its heads and widths; its numbers of sequences and tokens are ignored
        sequences, queries, cached : as in `attention_seconds`
        """
        sized = shape._replace(sequences=sequences, queries=queries, keys=queries + cached)
        return attention_call(sized, self.gpu).seconds

    def seconds(self, prefills: Sequence[tuple[int, int]], decodes: Sequence[int]) -> float:
        """Return the seconds of one pass of a batch.

        Parameters
        ----------
        prefills : (new tokens, cached tokens) of each sequence whose prompt is processed
        decodes : cached tokens of each sequence that gets its next token
        """
        tokens, sequences = sum(new for new, _ in prefills) + len(decodes), len(prefills) + len(decodes)
        found = np.interp(sequences, SEQUENCES, self.head_s)
        for each in self.outside.values():
            found += self.at(each, tokens)
        for each in self.parts.values():
            found += self.layers * self.at(each, tokens)
        for (new, cached), count in Counter(prefills).items():
            found += self.attention_seconds(count, new, cached)
        if decodes:
            found += self.attention_seconds(len(decodes), 1, round(sum(decodes) / len(decodes)))
        return float(found)

    def sum_of(self, parts: Iterable[str]) -> FloatArray:
        """Return the summed seconds of parts of a layer in each pass, (passes,); missing parts count as 0."""
        return sum((self.parts[part] for part in parts if part in self.parts), np.zeros(self.columns.size))

    def at(self, seconds: FloatArray, tokens: int) -> float:
        """Interpolate `seconds` (passes,) linearly at a number of tokens.

        Above the largest pass, the line through the last two passes is extended.
        """
        last, before = self.columns[-1], self.columns[-2]
        if tokens <= last:
            return float(np.interp(tokens, self.columns, seconds))
        slope = (seconds[-1] - seconds[-2]) / (last - before)
        return float(seconds[-1] + (tokens - last) * slope)


class PassPredictor:
    """Predictor of the time of a forward pass for any batch of requests, for event-driven simulators.

    The constructor predicts a few passes. Each call of `seconds` then needs less than a millisecond.

    Parameters
    ----------
    weights, gpu, settings : as in `ServingTimes.of`
    """

    def __init__(self, weights: Source, *, gpu: str | GpuSpec, **settings: Any) -> None:
        self.times = ServingTimes.of(weights, gpu=gpu, **settings)

    def seconds(self, prefills: Sequence[int | tuple[int, int]] = (), decodes: Sequence[int] = ()) -> float:
        """Return the seconds of one pass.

        Parameters
        ----------
        prefills : for each sequence whose prompt is processed, the number of its tokens; for a chunk of a
            prompt, (new tokens, cached tokens)
        decodes : number of cached tokens of each sequence that gets its next token. Attention is predicted
            for sequences with the mean of these numbers

        Raises
        ------
        BadInput : the batch is empty, or a number is out of range
        """
        chunks = [(each, 0) if isinstance(each, int) else (int(each[0]), int(each[1])) for each in prefills]
        numbers = [*(new for new, _ in chunks), *(cached + 1 for _, cached in chunks), *decodes]
        if not numbers or min(numbers) < 1 or max(numbers) > MOST_TOKENS:
            raise BadInput(
                f"a batch needs prefills or decodes with 1 to {MOST_TOKENS} tokens each, got "
                f"{list(prefills)!r:.40} and {list(decodes)!r:.40}"
            )
        return self.times.seconds(chunks, list(decodes))


def _tables(
    graphs: Sequence[ModelGraph], times: Sequence[ModelTime], columns: Sequence[int]
) -> dict[str, Any]:
    """Return the fields of `ServingTimes` that contain times and sizes.

    Parameters
    ----------
    graphs, times : operations of each pass, and their seconds
    columns : number of tokens of each pass, ascending
    """
    first = graphs[0]
    calls: Counter[Attention] = Counter()
    for o in first:
        if o.attention is not None:
            calls[o.attention._replace(sequences=1, queries=1, keys=1)] += round(o.runs)
    layers = calls.total()
    parts: dict[str, FloatArray] = {}
    outside: dict[str, FloatArray] = {}
    products: dict[str, ProductSize] = {}
    uneven: set[str] = set()
    for place, (graph, time) in enumerate(zip(graphs, times, strict=True)):
        for o in graph:
            part = part_of(o.name)
            if part == "head" or o.kind in COLLECTIVES:
                continue
            in_layer, own_s = part != o.name, time.turning_seconds.get(o.name, 0.0)
            if o.attention is None:
                own_s += time.seconds_of[o.name]
            else:
                part = "output"
            table = parts if in_layer else outside
            table.setdefault(part, np.zeros(len(graphs)))[place] += own_s / (layers if in_layer else 1)
            if o.kind == "gemm":
                if products.setdefault(part, ProductSize(o.m, o.k)) != (o.m, o.k):
                    uneven.add(part)
                products[part] = ProductSize(o.m, o.k)
    head = next((o for o in first.products.values() if part_of(o.name) == "head"), None)
    head_s = [0.0 if head is None else time.seconds_of[head.name] for time in times[: len(SEQUENCES)]]
    if head is not None:
        products["head"] = ProductSize(head.m, head.k)
    sizes = [next((o.experts.sizes for o in graph if o.experts is not None), None) for graph in graphs]
    active = [0.0 if each is None else float(np.count_nonzero(each.loads)) for each in sizes]
    return {
        "layers": layers,
        "columns": np.array(columns),
        "parts": parts,
        "outside": outside,
        "head_s": np.array(head_s),
        "products": products,
        "uneven": frozenset(uneven),
        "experts": sizes[0],
        "active_experts": np.array(active),
        "attention": dict(calls),
    }


def part_of(operation: str) -> str:
    """Return the name of an operation within its layer, such as `query`.

    For an operation outside of layers, its name is returned unchanged.
    """
    node = node_of(operation) or operation
    match = _PART.fullmatch(node)
    return node if match is None else match[1]

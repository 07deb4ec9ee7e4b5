"""What the words on the page mean, for a reader who has never met them."""

from collections.abc import Sequence
from typing import NamedTuple

from prunecast.codesign.table import PredictionTable
from prunecast.kernels import KERNELS


class Word(NamedTuple):
    """A word of the page, and its meaning in a sentence."""

    word: str
    meaning: str


MEANINGS = {
    "tensor": "tensor cores, which multiply small matrices",
    "issue": "instruction issue: each of the four schedulers of an SM starts one instruction per cycle",
    "shared": "shared memory, the scratch pad inside an SM",
    "l2 port": "the path from one SM to the L2 cache",
    "l2": "the L2 cache, which all SMs share",
    "dram": "the GPU's main memory",
    "latency": "no unit is busy half of the time: the layer is too small, or its steps wait for each other",
    "issuing": "an instruction is started: useful",
    "not selected": "ready, but the scheduler took another warp",
    "wait data": "waits until the next slab of weights and inputs has arrived in shared memory",
    "wait slot": "waits until a place in shared memory is free for the next slab",
    "wait tensor": "waits for the tensor cores to finish",
    "wait load": "waits for what it loads from L2 or DRAM",
    "wait shared": "waits for shared memory",
    "barrier": "waits for other warps of its block",
    "fix-up": "waits for the partial sums of other blocks that work on the same tile",
    "fetch": "fetches its first instructions",
    "wait store": "waits until results are written",
    "ideal work": "the multiplication alone, spread evenly over all SMs",
    "imbalance": "the busiest SM has more work than the mean",
    "tail": "SMs without work while the last items finish",
    "fill and drain": "before the first and after the last multiplication: first data in, last results out",
    "memory": "waits for data in between",
    "split fix-up": "adding up the parts of tiles that were split",
    "other": "the rest, for example instructions that nothing hides",
    "launch": "starting the kernel, which no kernel can avoid",
    "simulator": "predicted by simulating warps, SMs, L2 and DRAM",
    "model": "predicted by formulas: quicker and coarser than the simulator",
    "burst": "short runs with rests, so that the clock stays high",
    "sustained": "back to back, at the GPU's power limit",
    "graph": "kernels are recorded once and launched together (a CUDA graph)",
    "stream": "kernels are launched one by one",
}
"""Units of the GPU, waits of warps, parts of the time, and settings."""


def meanings() -> dict[str, str]:
    """`MEANINGS`, and of every kernel the one line that its record has."""
    return {**MEANINGS, **{name: kernel.meaning for name, kernel in KERNELS.items()}}


VERDICTS = {
    "pays": "faster when pruned, and the intervals of dense and pruned do not overlap",
    "may pay": "predicted to be faster, but the intervals overlap",
    "no gain seen": "predicted to be less than 2 % faster, or slower, and the intervals overlap",
    "stay dense": "slower when pruned, and the intervals do not overlap",
}

_TABLE = (
    Word("layer, M x K", "a weight matrix with M outputs and K inputs"),
    Word("tokens", "inputs that the layer handles at once, or pixels of a convolution"),
    Word("us", "microsecond, a millionth of a second"),
    Word("low - high", "interval of the prediction; what it rests on stands above the table"),
    Word("speedup", "time of dense over time of the kernel: above 1 it is faster"),
    Word("kernel", "the program that the GPU runs for this layer"),
    Word("pattern", "the rule by which weights are removed; tile-wise:128 means tiles of 128 rows"),
    Word("removed %", "share of weights that are pruned away; density is what is kept"),
    Word("bound", "the unit of the GPU that limits the layer"),
)
_GPU = (
    Word("SM", "streaming multiprocessor: a GPU has many, which work side by side"),
    Word("block, warp", "a block of threads runs on one SM; a warp is 32 of its threads"),
    Word("FLOP", "one multiplication or addition; TFLOP/s are a million million a second"),
    Word("wgmma, mma", "instructions of the tensor cores; sparse ones skip the zeros of 2:4"),
)


def words_of(table: PredictionTable) -> Sequence[Word]:
    """The words that this page uses, in the order in which they come up."""
    first = table[0]
    settings = (first.engine, first.state, table.provenance.launch)
    kernels = dict.fromkeys(row.kernel for row in table)
    bounds = sorted({row.bound for row in table})
    told = meanings()
    verdicts = [Word(word, meaning) for word, meaning in VERDICTS.items()]
    known = [Word(word, told[word]) for word in (*kernels, *bounds, *settings) if word in told]
    return [*_TABLE, *verdicts, *known, *_GPU]

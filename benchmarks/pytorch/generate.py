"""Tokens per second of `generate` of transformers, and of a loop with one CUDA graph replay per token.

`benchmarks.pytorch.huggingface --only generate` measures and shows it. Each model writes 128 tokens after a
prompt of 16, greedily. Times are those of one token of all sequences: a pass. Of `generate` it is
(time of 128 tokens - time of 1) / 127, so that reading the prompt does not count.

    default cache   eager; transformers compiles no model whose cache grows
    static cache    eager, and compiled by transformers in CUDA graphs
    captured loop   `Writer` of examples/faster_llm: the same model and cache, without the host loop
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import transformers as hf
from examples.faster_llm.writer import Writer
from torch import nn

from benchmarks.pytorch.cases import DEVICE, LLAMA, PATTERN, llama, predicted_us, release, tiny_config
from prunecast.torch import fuse_dense, prepare_attention, sparsify
from prunecast.validation.torch_models.timing import error, times_us, traced

SPARSITY = 0.75
LLAMA_VOCABULARY = 32000
HOST_SHARE = 0.1
"""Share of a token's time in `generate` that the captured loop does not need, from which the host is called
the limit. Kind: choice."""
LOOP = "captured loop"
Write = Callable[[int], torch.Tensor]


class Generation(NamedTuple):
    """Tokens that a Llama writes."""

    config: hf.PretrainedConfig
    batch: int
    attention: str
    prompt: int = 16
    tokens: int = 128

    @property
    def name(self) -> str:
        """Name of the row."""
        blocks, hidden = self.config.num_hidden_layers, self.config.hidden_size
        model = "Llama-7B" if hidden == LLAMA["hidden_size"] else f"tiny Llama ({hidden} features)"
        return f"generate, {model}, {blocks} blocks, batch {self.batch}, {self.attention}"

    @property
    def workload(self) -> str:
        """One token with a static cache, all of whose places attention reads under a mask."""
        return f"decode:{self.batch}@{self.prompt + self.tokens - 1}/padded"

    def make(self) -> nn.Module:
        """Return the model with random weights in fp16, always the same."""
        torch.manual_seed(0)
        with torch.device(DEVICE):
            return hf.LlamaForCausalLM(self.config).half().eval()

    def tiny(self) -> "Generation":
        """Return one small block that writes a few tokens."""
        return self._replace(config=tiny_config(self.config), prompt=4, tokens=4)


def generations(blocks: int) -> list[Generation]:
    """Return batch 1 and 16, with attention as it comes and prepared."""
    config = llama(blocks, LLAMA_VOCABULARY)
    return [Generation(config, batch, how) for how in ("as it comes", "prepared") for batch in (1, 16)]


@torch.no_grad()
def measure_generation(
    case: Generation, gpu: str, rounds: int, engine: str, *, quick: bool = False
) -> dict[str, Any]:
    """Return times in us of a token by cache and variant, the predicted ones, errors, kernels of the loops.

    Parameters
    ----------
    quick : only captured loops, and no predictions
    """
    began, sparse = time.monotonic(), f"sparse {SPARSITY:.0%}"
    torch.manual_seed(1)
    prompt = torch.randint(3, case.config.vocab_size, (case.batch, case.prompt), device=DEVICE)
    models = {"dense": fuse_dense(case.make()), sparse: case.make()}
    most_tokens = max(64, case.batch * case.prompt)
    sparsify(models[sparse], PATTERN, sparsity=SPARSITY, gpu=gpu, max_tokens=most_tokens, quiet=True)
    if case.attention == "prepared":
        for model in models.values():
            prepare_attention(model, padding="none")
    zeros = case.make()
    zeros.load_state_dict(models[sparse].state_dict())
    off = error(models[sparse](prompt).logits, zeros(prompt).logits)
    del zeros
    row: dict[str, Any] = {"case": case.name, "us": {}, "error": {sparse: off}, "refused": {}}
    row |= {"tokens_per_pass": case.batch, "kernels": {}, "equal_tokens": {}}
    first: dict[str, torch.Tensor] = {}
    row["traces"] = {}
    for group in (LOOP,) if quick else ("default cache", "static cache", LOOP):
        torch._dynamo.reset()
        times: dict[str, float] = {}
        for name, write in _writers(group, models, prompt, case.tokens).items():
            try:
                written = write(case.tokens)
                kind = " ".join(name.split()[:-1])
                equal = (written == first.setdefault(kind, written)).float().mean()
                row["equal_tokens"][f"{name}, {group}"] = float(equal)
                times[name] = _us_of_token(write, case.tokens, rounds)
                if isinstance(write, CapturedLoop) and DEVICE == "cuda":
                    row["traces"][name] = traced(write.writer(case.tokens).step).rows()
            except Exception as reason:  # what torch refuses is a line of the record
                row["refused"][f"{group}: {name}"] = f"{type(reason).__name__}: {str(reason)[:300]}"
        row["us"][group] = times
    if not quick:
        row["predicted_us"] = predicted_us(case.config, case.workload, (SPARSITY,), gpu, engine)
    row["device"] = DEVICE
    row["seconds"] = time.monotonic() - began
    release(models)
    return row


def _writers(group: str, models: dict[str, nn.Module], prompt: torch.Tensor, tokens: int) -> dict[str, Write]:
    """Return functions that write as many tokens as they are given, by variant."""
    found: dict[str, Write] = {}
    for kind, model in models.items():
        if group == LOOP:
            found[f"{kind} loop"] = CapturedLoop(model, prompt)
            continue
        found[f"{kind} eager"] = _generate(model, prompt, group, disable_compile=True)
        if group == "static cache":
            compiling = {} if DEVICE == "cuda" else {"compile_config": _on_a_cpu()}
            found[f"{kind} compiled"] = _generate(model, prompt, group, **compiling)
    return found


def _on_a_cpu() -> hf.CompileConfig:
    """Return settings by which transformers traces the model on a CPU, without compiling C++."""
    config = hf.CompileConfig(backend="eager", mode=None)
    config._compile_all_devices = True
    return config


def _generate(model: nn.Module, prompt: torch.Tensor, group: str, **options: Any) -> Write:
    cache = {"cache_implementation": "static"} if group == "static cache" else {}
    given = {"attention_mask": torch.ones_like(prompt), "do_sample": False, "pad_token_id": 0, **cache}

    def write(count: int) -> torch.Tensor:
        written: torch.Tensor = model.generate(
            prompt, max_new_tokens=count, min_new_tokens=count, **given, **options
        )
        return written

    return write


class CapturedLoop:
    """A loop over captured steps, which also reads the prompt step by step.

    Each length has its own `Writer`: a static cache has a fixed size.
    """

    def __init__(self, model: nn.Module, prompt: torch.Tensor) -> None:
        self._model, self._prompt = model, prompt
        self._writers: dict[int, Writer] = {}

    def __call__(self, count: int) -> torch.Tensor:
        """Write `count` tokens."""
        return self.writer(count).write(self._prompt, lambda logits: logits.argmax(-1))

    def writer(self, count: int) -> Writer:
        """Return the writer of `count` tokens, whose step is one pass."""
        length = self._prompt.shape[1] + count
        if length not in self._writers:
            self._writers[length] = Writer(self._model, length, DEVICE, len(self._prompt))
        return self._writers[length]


def _us_of_token(write: Write, tokens: int, rounds: int) -> float:
    """Return the microseconds of each token after the first one.

    Raises
    ------
    RuntimeError : the first token alone needed as long as all of them: the times are noise
    """
    us = times_us({"all": lambda: write(tokens), "first": lambda: write(1)}, rounds)
    if us["all"] <= us["first"]:
        raise RuntimeError(f"{tokens} tokens need {us['all']:.0f} us, 1 token {us['first']:.0f}: noise")
    return (us["all"] - us["first"]) / (tokens - 1)


def host_limits(us: dict[str, dict[str, float]]) -> list[str]:
    """Return one line for each model and cache: how much of a token's time the host loop adds."""
    lines = []
    for name, loop_us in us.get(LOOP, {}).items():
        kind = name.removesuffix(" loop")
        for group in (each for each in us if each != LOOP):
            own = {each: t for each, t in us[group].items() if each.startswith(kind)}
            if not own:
                continue
            token_us = min(own.values())
            share = 1.0 - loop_us / token_us
            limit = "the captured loop is slower: no limit is shown"
            if share >= -HOST_SHARE:
                limit = "the host is the limit" if share > HOST_SHARE else "the GPU is the limit"
            lines.append(
                f"{kind}, {group}: {token_us:.0f} us a token, captured loop {loop_us:.0f}: "
                f"{limit} ({share:.0%})"
            )
    return lines

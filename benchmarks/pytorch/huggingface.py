"""How much faster is a pruned model of Hugging Face, as it comes and with its attention prepared?

    python -m benchmarks.pytorch.huggingface [--only TEXT] [--seconds N] [--out F.json]
    python -m benchmarks.pytorch.huggingface --show F.json

Classes of transformers with random weights, `sparsify` and `prepare_attention`, no other code. Every case
runs twice: as it comes, and with attention prepared in the dense and the sparse model. The dense model is the
fastest of eager, CUDA graph, and torch.compile with fused Q/K/V and gate/up in a graph; the sparse one the
fastest of the same three. Medians of single passes, all variants in turn, with rests. `generate` is timed
over all tokens but the first, with transformers' own loop. Needs the GPU that --gpu names.
"""

import argparse
import copy
import gc
import json
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers as hf
from torch import nn

from prunecast.torch import fuse_dense, prepare_attention, sparsify
from prunecast.torch.attention import attention_kernels
from prunecast.validation.torch_models.timing import captured, error, times_us, traced

PATTERN = "tile-wise:128"
VOCABULARY = 512
LLAMA = {"vocab_size": VOCABULARY, "hidden_size": 4096, "num_attention_heads": 32, "head_dim": 128}
QWEN = {"vocab_size": VOCABULARY, "hidden_size": 3584, "num_attention_heads": 28, "num_key_value_heads": 4}
ROBERTA = {"hidden_size": 1024, "num_attention_heads": 16, "intermediate_size": 4096}
WHISPER = {"d_model": 1280, "encoder_attention_heads": 20, "encoder_ffn_dim": 5120, "num_mel_bins": 128}
T5 = {"vocab_size": VOCABULARY, "d_model": 1024, "d_ff": 4096, "d_kv": 64, "num_heads": 16}
Inputs = dict[str, Any]


class Case(NamedTuple):
    """A model and a pass."""

    name: str
    make: Callable[[], nn.Module]
    batch: int
    tokens: int
    padding: str = "none"
    sparsities: tuple[float, ...] = (0.75,)

    def inputs(self) -> Inputs:
        """Return random arguments of a forward; with padding, lengths from an eighth of the tokens."""
        if "Whisper" in self.name:
            frames = torch.randn(self.batch, WHISPER["num_mel_bins"], 2 * self.tokens, device="cuda")
            return {"input_features": frames.half()}
        ids = torch.randint(3, VOCABULARY, (self.batch, self.tokens), device="cuda")
        causal = any(word in self.name for word in ("Llama", "Qwen", "Mistral"))
        given: Inputs = {"input_ids": ids, **({"use_cache": False} if causal else {})}
        if self.padding == "none":
            return given
        lengths = torch.randint(self.tokens // 8, self.tokens + 1, (self.batch, 1), device="cuda")
        return {**given, "attention_mask": (torch.arange(self.tokens, device="cuda") < lengths).long()}


def llama(blocks: int) -> nn.Module:
    return hf.LlamaModel(hf.LlamaConfig(**LLAMA, intermediate_size=11008, num_hidden_layers=blocks))


def qwen25() -> nn.Module:
    return hf.Qwen2Model(hf.Qwen2Config(**QWEN, intermediate_size=18944, num_hidden_layers=4))


def mistral() -> nn.Module:
    sizes = {**LLAMA, "num_key_value_heads": 8, "intermediate_size": 14336, "num_hidden_layers": 4}
    return hf.MistralModel(hf.MistralConfig(**sizes, sliding_window=None))


def qwen3() -> nn.Module:
    sizes = {**LLAMA, "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 8}
    return hf.Qwen3Model(hf.Qwen3Config(**sizes, intermediate_size=6144, num_hidden_layers=8))


def bert() -> nn.Module:
    return hf.BertModel(hf.BertConfig(vocab_size=VOCABULARY), add_pooling_layer=False)


def roberta() -> nn.Module:
    sizes = {**ROBERTA, "vocab_size": VOCABULARY, "num_hidden_layers": 8, "max_position_embeddings": 514}
    return hf.RobertaModel(hf.RobertaConfig(**sizes), add_pooling_layer=False)


def whisper() -> nn.Module:
    config = hf.WhisperConfig(**WHISPER, encoder_layers=8)
    return hf.models.whisper.modeling_whisper.WhisperEncoder(config)


def t5() -> nn.Module:
    return hf.T5EncoderModel(hf.T5Config(**T5, num_layers=8))


CASES = (
    Case("BERT-base, 32 x 128, padded", bert, 32, 128, "right", (0.75, 0.9)),
    Case("Llama-7B, 4 blocks, 1 x 2048", lambda: llama(4), 1, 2048, "none", (0.75, 0.5)),
    Case("Whisper-large encoder, 8 blocks, 4 x 1500", whisper, 4, 1500),
    Case("Qwen3-1.7B, 8 blocks, 1 x 4096", qwen3, 1, 4096),
    Case("T5-large encoder, 8 blocks, 8 x 512", t5, 8, 512),
    Case("RoBERTa-large, 8 blocks, 16 x 256, padded", roberta, 16, 256, "right"),
    Case("BERT-base, 32 x 128, no mask given", bert, 32, 128),
    Case("Qwen2.5-7B, 4 blocks, 1 x 2048", qwen25, 1, 2048),
    Case("Mistral-7B, 4 blocks, 2 x 2048", mistral, 2, 2048),
    Case("RoBERTa-large, 8 blocks, 16 x 256, no mask given", roberta, 16, 256),
)


def made(case: Case) -> nn.Module:
    torch.manual_seed(0)
    with torch.device("cuda"):
        return case.make().half().eval()


@torch.no_grad()
def measure(case: Case, gpu: str, rounds: int) -> dict[str, Any]:
    """Return times in us by attention and variant, errors, kernels of attention and of the sparse pass."""
    torch.manual_seed(1)
    began, inputs = time.monotonic(), case.inputs()
    models = {"dense": made(case), "dense fused": fuse_dense(made(case))}
    wanted: dict[str, torch.Tensor] = {}
    for sparsity in case.sparsities:
        name = f"sparse {sparsity:.0%}"
        models[name] = made(case)
        tokens = case.batch * case.tokens
        sparsify(
            models[name], PATTERN, sparsity=sparsity, gpu=gpu, max_tokens=tokens, few_tokens=False, quiet=True
        )
        zeros = made(case)
        zeros.load_state_dict(models[name].state_dict())
        wanted[name] = _real(zeros(**inputs).last_hidden_state, inputs)
        del zeros
    row: dict[str, Any] = {"case": case.name, "padding": case.padding, "us": {}, "traces": {}}
    row["error"], row["kernels"], row["refused"] = {}, {}, {}
    for attention in ("as it comes", "prepared"):
        if attention == "prepared":
            for model in models.values():
                prepare_attention(model, padding=case.padding)
        row["kernels"][attention] = sorted(set(attention_kernels(models["dense"], inputs).values()))
        variants = _variants(models, inputs, row["refused"], attention)
        for name, forward in variants.items():
            own = " ".join(name.split()[:2])
            if own in wanted:
                off = error(_real(forward(), inputs), wanted[own])
                row["error"][own] = max(off, row["error"].get(own, 0.0))
        row["us"][attention] = times_us(variants, rounds)
        compiled = f"sparse {case.sparsities[0]:.0%} compiled"
        if compiled in variants:
            trace = traced(variants[compiled])
            row["traces"][attention] = [list(kernel) for kernel in trace.kernels]
        variants.clear()
    row["seconds"] = time.monotonic() - began
    models.clear()
    gc.collect()
    torch.cuda.empty_cache()
    return row


def _real(states: torch.Tensor, inputs: Inputs) -> torch.Tensor:
    """Return the states of tokens that are no padding: those of padding are anything."""
    mask = inputs.get("attention_mask")
    return states.clone() if mask is None else states[mask.bool()]


def _variants(
    models: dict[str, nn.Module], inputs: Inputs, refused: dict[str, str], attention: str
) -> dict[str, Callable[[], torch.Tensor]]:
    found: dict[str, Callable[[], torch.Tensor]] = {}
    for kind, model in models.items():
        forms = ("eager", "graph") if kind == "dense" else ("compiled",)
        for form in ("eager", "graph", "compiled") if kind.startswith("sparse") else forms:
            try:
                torch._dynamo.reset()
                run = torch.compile(model) if form == "compiled" else model

                def forward(run: Any = run) -> torch.Tensor:
                    return run(**inputs).last_hidden_state

                with torch._inductor.config.patch({"triton.enable_pdl": True}):
                    found[f"{kind} {form}"] = forward if form == "eager" else captured(forward)
            except Exception as reason:  # what torch refuses is a line of the record
                refused[f"{attention}: {kind} {form}"] = f"{type(reason).__name__}: {str(reason)[:300]}"
                print(traceback.format_exc()[-1200:], flush=True)
    return found


@torch.no_grad()
def generating(gpu: str, blocks: int, tokens: int, batch: int, attention: str) -> dict[str, Any]:
    """Return tokens per second of `generate` with a static cache, dense and sparse."""
    sizes = {**LLAMA, "intermediate_size": 11008, "num_hidden_layers": blocks}
    found: dict[str, Any] = {"case": f"generate, Llama-7B, {blocks} blocks, batch {batch}, {attention}"}
    ids = torch.randint(3, VOCABULARY, (batch, 16), device="cuda")
    options = {"do_sample": False, "attention_mask": torch.ones_like(ids), "pad_token_id": 0}
    options |= {"cache_implementation": "static"}
    for kind in ("dense", "sparse"):
        torch.manual_seed(0)
        torch._dynamo.reset()
        with torch.device("cuda"):
            model = hf.LlamaForCausalLM(hf.LlamaConfig(**sizes)).half().eval()
        if kind == "sparse":
            sparsify(model, PATTERN, sparsity=0.75, gpu=gpu, max_tokens=64 * batch, quiet=True)
        else:
            fuse_dense(model)
        if attention == "prepared":
            prepare_attention(model, padding="none")
        seconds = []
        for count in (tokens, tokens, 1, tokens, 1, tokens, 1):
            torch.cuda.synchronize()
            start = time.perf_counter()
            model.generate(ids, max_new_tokens=count, min_new_tokens=count, **copy.copy(options))
            torch.cuda.synchronize()
            seconds.append((count, time.perf_counter() - start))
        many, one = (min(s for count, s in seconds[2:] if count == c) for c in (tokens, 1))
        found[kind] = batch * (tokens - 1) / (many - one)
        del model
        gc.collect()
        torch.cuda.empty_cache()
    found["speedup"] = found["sparse"] / found["dense"]
    return found


def show(document: dict[str, Any]) -> None:
    """Print one line for each case and sparsity: dense, sparse, speedup, eager; as it comes and prepared."""
    for row in document["rows"]:
        if "us" not in row:
            print({name: round(v, 2) if isinstance(v, float) else v for name, v in row.items()})
            continue
        for sparse, off in row["error"].items():
            cells = [f"{row['case']} {sparse.split()[-1]}"]
            for us in row["us"].values():
                dense = {name: t for name, t in us.items() if name.startswith("dense")}
                own = {name: t for name, t in us.items() if name.startswith(sparse)}
                if not dense or not own:
                    continue
                best, fast = min(dense, key=dense.get), min(own, key=own.get)
                eager = us.get("dense eager", 0.0) / us.get(f"{sparse} eager", 1.0)
                cells.append(
                    f"{dense[best]:.0f} ({best.split()[-1]}) {own[fast]:.0f} ({fast.split()[-1]}) "
                    f"{dense[best] / own[fast]:.2f}, eager {eager:.2f}"
                )
            print(" | ".join((*cells, f"error {off:.2%}", str(row["kernels"]), f"{row['seconds']:.0f} s")))
        for name, why in row["refused"].items():
            print(f"    {name}: {why[:200]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--gpu", default="h200-sxm")
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--seconds", type=float, default=540.0, help="begin no case after so many")
    parser.add_argument("--blocks", type=int, default=8, help="of the model that generates")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--show", type=Path)
    asked = parser.parse_args()
    if asked.show is not None:
        show(json.loads(asked.show.read_text()))
        return
    began = time.monotonic()
    rows: list[dict[str, Any]] = []
    document = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "transformers": hf.__version__,
        "rows": rows,
    }
    jobs = [(case.name, lambda case=case: measure(case, asked.gpu, asked.rounds)) for case in CASES]
    for attention in ("as it comes", "prepared"):
        for batch in (1, 16):
            given = (asked.gpu, asked.blocks, 128, batch, attention)
            jobs.append((f"generate, batch {batch}, {attention}", lambda given=given: generating(*given)))
    for name, job in jobs:
        if asked.only not in name or time.monotonic() - began > asked.seconds:
            continue
        try:
            rows.append(job())
            show({"rows": rows[-1:]})
        except Exception:
            print(f"{name}: {traceback.format_exc()[-2500:]}", flush=True)
        if asked.out is not None:
            asked.out.write_text(json.dumps(document, indent=1))
    print()
    show(document)


if __name__ == "__main__":
    main()

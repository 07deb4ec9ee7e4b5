"""Models of Hugging Face that are timed, predicted times of their passes, and small forms for tests."""

import gc
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers as hf
from torch import nn

from prunecast import predict
from prunecast.errors import BadInput

PATTERN = "tile-wise:128"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
VOCABULARY = 512
LLAMA = {"vocab_size": VOCABULARY, "hidden_size": 4096, "num_attention_heads": 32, "head_dim": 128}
QWEN = {"vocab_size": VOCABULARY, "hidden_size": 3584, "num_attention_heads": 28, "num_key_value_heads": 4}
ROBERTA = {"hidden_size": 1024, "num_attention_heads": 16, "intermediate_size": 4096}
WHISPER = {"d_model": 1280, "encoder_attention_heads": 20, "encoder_ffn_dim": 5120, "num_mel_bins": 128}
T5 = {"vocab_size": VOCABULARY, "d_model": 1024, "d_ff": 4096, "d_kv": 64, "num_heads": 16}
TINY = {
    **dict.fromkeys(("hidden_size", "d_model"), 64),
    **dict.fromkeys(("intermediate_size", "d_ff", "encoder_ffn_dim"), 128),
    **dict.fromkeys(("num_attention_heads", "num_heads", "encoder_attention_heads"), 4),
    **dict.fromkeys(("num_hidden_layers", "num_layers", "encoder_layers"), 1),
    **dict.fromkeys(("head_dim", "d_kv"), 16),
    "num_key_value_heads": 2,
    "vocab_size": VOCABULARY,
}
"""Sizes of a model for tests, by the names that configurations use."""
TINY_TOKENS = 16
Inputs = dict[str, Any]


class Case(NamedTuple):
    """A model and a pass."""

    name: str
    model: type[nn.Module]
    config: hf.PretrainedConfig
    batch: int
    tokens: int
    padding: str = "none"
    sparsities: tuple[float, ...] = (0.75,)

    @property
    def workload(self) -> str:
        """The pass, as `predict` takes it."""
        return f"prefill:{self.batch}x{self.tokens}{'' if self.padding == 'none' else '/padded'}"

    def make(self) -> nn.Module:
        """Return the model with random weights in fp16, always the same."""
        torch.manual_seed(0)
        without_pooler = self.model in (hf.BertModel, hf.RobertaModel)
        with torch.device(DEVICE):
            options = {"add_pooling_layer": False} if without_pooler else {}
            return self.model(self.config, **options).half().eval()

    def inputs(self) -> Inputs:
        """Return random arguments of a forward; with padding, lengths from an eighth of the tokens."""
        if self.model is WhisperEncoder:
            shape = (self.batch, self.config.num_mel_bins, 2 * self.tokens)
            return {"input_features": torch.randn(shape, device=DEVICE).half()}
        ids = torch.randint(3, VOCABULARY, (self.batch, self.tokens), device=DEVICE)
        causal = self.model in (hf.LlamaModel, hf.MistralModel, hf.Qwen2Model, hf.Qwen3Model)
        given: Inputs = {"input_ids": ids, **({"use_cache": False} if causal else {})}
        if self.padding == "none":
            return given
        lengths = torch.randint(self.tokens // 8, self.tokens + 1, (self.batch, 1), device=DEVICE)
        return {**given, "attention_mask": (torch.arange(self.tokens, device=DEVICE) < lengths).long()}

    def tiny(self) -> "Case":
        """Return the same architecture with one small block, two short sequences."""
        config = tiny_config(self.config)
        if self.model is WhisperEncoder:
            config.max_source_positions = TINY_TOKENS
        return self._replace(name=f"tiny {self.name}", config=config, batch=2, tokens=TINY_TOKENS)


def tiny_config(config: hf.PretrainedConfig) -> hf.PretrainedConfig:
    """Return the configuration with the sizes of `TINY`."""
    own = {name: value for name, value in config.to_dict().items() if name != "layer_types"}
    sizes = {name: size for name, size in TINY.items() if name in own}
    if own.get("num_key_value_heads") == own.get("num_attention_heads"):
        sizes.pop("num_key_value_heads", None)
        own.pop("num_key_value_heads", None)
    return type(config).from_dict({**own, **sizes})


def llama(blocks: int, vocabulary: int = VOCABULARY) -> hf.PretrainedConfig:
    sizes = {**LLAMA, "vocab_size": vocabulary, "intermediate_size": 11008}
    return hf.LlamaConfig(**sizes, num_hidden_layers=blocks)


def mistral() -> hf.PretrainedConfig:
    sizes = {**LLAMA, "num_key_value_heads": 8, "intermediate_size": 14336, "num_hidden_layers": 4}
    return hf.MistralConfig(**sizes, sliding_window=None)


def qwen3() -> hf.PretrainedConfig:
    sizes = {**LLAMA, "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 8}
    return hf.Qwen3Config(**sizes, intermediate_size=6144, num_hidden_layers=8)


BERT = hf.BertConfig(vocab_size=VOCABULARY)
ROBERTA_LARGE = hf.RobertaConfig(
    **ROBERTA, vocab_size=VOCABULARY, num_hidden_layers=8, max_position_embeddings=514
)
QWEN25 = hf.Qwen2Config(**QWEN, intermediate_size=18944, num_hidden_layers=4)
WhisperEncoder = hf.models.whisper.modeling_whisper.WhisperEncoder
CASES = (
    Case("BERT-base, 32 x 128, padded", hf.BertModel, BERT, 32, 128, "right", (0.75, 0.9)),
    Case("Llama-7B, 4 blocks, 1 x 2048", hf.LlamaModel, llama(4), 1, 2048, "none", (0.75, 0.5)),
    Case(
        "Whisper-large encoder, 8 blocks, 4 x 1500",
        WhisperEncoder,
        hf.WhisperConfig(**WHISPER, encoder_layers=8, architectures=["WhisperEncoder"]),
        4,
        1500,
    ),
    Case("Qwen3-1.7B, 8 blocks, 1 x 4096", hf.Qwen3Model, qwen3(), 1, 4096),
    Case(
        "T5-large encoder, 8 blocks, 8 x 512",
        hf.T5EncoderModel,
        hf.T5Config(**T5, num_layers=8, architectures=["T5EncoderModel"]),
        8,
        512,
    ),
    Case("RoBERTa-large, 8 blocks, 16 x 256, padded", hf.RobertaModel, ROBERTA_LARGE, 16, 256, "right"),
    Case("BERT-base, 32 x 128, no mask given", hf.BertModel, BERT, 32, 128),
    Case("Qwen2.5-7B, 4 blocks, 1 x 2048", hf.Qwen2Model, QWEN25, 1, 2048),
    Case("Mistral-7B, 4 blocks, 2 x 2048", hf.MistralModel, mistral(), 2, 2048),
    Case("RoBERTa-large, 8 blocks, 16 x 256, no mask given", hf.RobertaModel, ROBERTA_LARGE, 16, 256),
)


def release(models: dict[str, nn.Module]) -> None:
    """Free the memory of models on their device."""
    models.clear()
    gc.collect()
    if DEVICE == "cuda":
        torch.cuda.empty_cache()


def predicted_us(
    config: hf.PretrainedConfig, workload: str, sparsities: tuple[float, ...], gpu: str, engine: str
) -> dict[str, float]:
    """Return the pass times of `predict --runtime torch` in us by kind of model.

    Empty where the launches of the architecture in torch are not known.
    """
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        config.save_pretrained(folder)
        options = {"gpu": gpu, "pattern": PATTERN, "workload": workload, "runtime": "torch", "engine": engine}
        for sparsity in sparsities:
            try:
                whole = predict(Path(folder) / "config.json", sparsity=sparsity, **options).whole
            except BadInput as unknown:
                why = str(unknown).replace(f"{folder}/", "")
                print(f"not predicted: {why}", flush=True)
                return {}
            found["dense"] = 1e6 * whole.dense.seconds
            found[f"sparse {sparsity:.0%}"] = 1e6 * whole.best.seconds
    return found

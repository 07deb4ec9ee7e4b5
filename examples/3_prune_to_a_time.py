"""The feed-forward layers of one block in 60 % of their dense time, what is important kept."""

from pathlib import Path

from prunecast.codesign.search import Targets, prune_model

WEIGHTS = Path(__file__).parent / "stdlib_lm" / "weights.safetensors"

pruned = prune_model(
    WEIGHTS,
    targets=Targets(latency_share=0.6),
    gpu="h200-sxm",
    tokens=32768,
    engine="model",
    target=["re:0.ffn"],
)
result = pruned.result
share = result.retained_importance
print(f"{1e6 * result.seconds:.1f} of {1e6 * result.dense_seconds:.1f} us, kept {share:.1%}")
for layer in result.layers:
    print(f"{layer.layer:26} {layer.pattern:20} removed {layer.removed:.2f}  {layer.kernel}")

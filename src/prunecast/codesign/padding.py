"""Padding of a whole model to a multiple of 8 tokens: the padded workload, and whether it is faster.

With other numbers of tokens, an inference engine copies B and C of sparse layers to padded rows. Padded
sequences need no copies, but more tokens are computed, and attention of encoders reads a mask. `SparseLinear`
of torch pads rows itself (`planned_tokens`), so that padded sequences save nothing there.
"""

from collections.abc import Callable
from dataclasses import replace

from prunecast.codesign.table import PredictionTable
from prunecast.plan.misaligned import VECTOR_TOKENS
from prunecast.text import milliseconds
from prunecast.workload.graph import Pass
from prunecast.workload.workload import Workload

LEAST_SAVED = 0.01
"""Share of the time of a pass that padding must save to be mentioned. Kind: choice."""
MOST_WEIGHT = 1e9
"""Weights of parts in the text of a workload are less: they have up to nine digits before the point. Kind:
definition, `workload.graph.shapes`."""


def padded_workload(workload: Workload) -> str:
    """Return the text of a workload with the next multiple of 8 tokens in each pass.

    The text is empty if no pass would change, or if padding is no choice of the user: models of images have
    fixed numbers of tokens, ONNX files state theirs, and torch pads rows itself.
    """
    if workload.runtime != "engine" or workload.form not in ("standard", "checkpoint"):
        return ""
    passes = workload.passes
    if all(run.columns % VECTOR_TOKENS == 0 or run.columns == 1 for run in passes):
        return ""
    for run, graph in zip(passes, workload.graphs, strict=True):
        counts = {product.n for product in graph.products.values()}
        if run.columns not in counts or (run.cached and not run.is_decode):
            return ""
    texts = [_padded(run) for run in passes]
    least = min(run.share for run in passes)
    weights = [run.share / least for run in passes]
    if len(set(texts)) < len(texts) or max(weights) >= MOST_WEIGHT:  # a workload has every part once
        return ""
    if len(texts) == 1:
        return texts[0]
    return ",".join(f"{text}={weight:.6f}" for text, weight in zip(texts, weights, strict=True))


def _padded(run: Pass) -> str:
    """Return the text of a pass with a multiple of 8 tokens: longer sequences, in a decode more of them."""
    if run.is_decode:
        batch = run.batch if run.batch == 1 else -(-run.batch // VECTOR_TOKENS) * VECTOR_TOKENS
        return f"decode:{batch}@{run.cached}{'/padded' * run.padded}"
    tokens = run.tokens
    while run.batch * tokens % VECTOR_TOKENS:
        tokens += 1
    kind = "batch" if run.all_logits else "prefill"
    return f"{kind}:{run.batch}x{tokens}{'/padded' * (run.padded or tokens > run.tokens)}"


def with_padding_remark(
    table: PredictionTable, workload: str, predict_again: Callable[[str], PredictionTable]
) -> PredictionTable:
    """Return the table with a remark on the time of the padded workload if that is faster.

    Parameters
    ----------
    workload : text of the padded workload; empty for none
    predict_again : predicts the model with another workload, its kernels chosen anew
    """
    whole = table.whole
    if not workload or whole is None:
        return table
    padded = predict_again(workload).whole
    assert padded is not None
    if padded.best.seconds > (1.0 - LEAST_SAVED) * whole.best.seconds:
        return table
    padded_ms, own_ms = (milliseconds(model.best.seconds) for model in (padded, whole))
    remark = f"padded to --workload {workload} the pass would need {padded_ms} ms instead of {own_ms}"
    return replace(table, whole=whole._replace(remarks=(*whole.remarks, remark)))

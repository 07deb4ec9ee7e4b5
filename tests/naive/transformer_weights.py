"""The number of weights of a transformer from its sizes, without a graph."""

from dataclasses import replace


def layer_weights(shape):
    """Elements of all matrices of the layers, without routers of experts and an audio encoder."""
    if shape.layer_sizes:
        return sum(
            layer_weights(replace(shape.layer_shape(layer), layers=1)) for layer in range(shape.layers)
        )
    attention = shape.hidden * (2 * shape.width + 2 * shape.key_width)
    if shape.key_rank:
        content = shape.width - shape.heads * shape.rotary_width
        values = shape.heads * shape.value_width
        attention = (shape.hidden + shape.width) * shape.query_rank
        attention += shape.hidden * (values + shape.rotary_width)
        attention += (shape.hidden + content + values) * shape.key_rank
    widths = (shape.experts or 1) * shape.feed_forward + shape.shared_expert
    every = shape.dense_layers * shape.dense_feed_forward + (shape.layers - shape.dense_layers) * widths
    return shape.layers * attention + (3 if shape.gated else 2) * shape.hidden * every

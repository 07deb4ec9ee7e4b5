"""The slow twin of `patterns.weight_update`: every row by itself, as a least-squares fit over inputs."""

import numpy as np


def updated(weights, mask, inputs, damping):
    """Each row's kept weights fit the row's dense outputs, and are drawn to what they were.

    Parameters
    ----------
    inputs : (tokens, K), whose mean products are the second moments
    damping : share of the mean square of all inputs by which moving a weight is punished
    """
    tokens, k = inputs.shape
    pull = np.sqrt(damping * (inputs**2).mean() * tokens)
    found = np.zeros((len(weights), k))
    for row, keeps in zip(range(len(weights)), mask, strict=True):
        columns = [column for column in range(k) if keeps[column]]
        a = np.vstack([inputs[:, columns], pull * np.eye(len(columns))])
        b = np.concatenate([inputs @ weights[row], pull * weights[row, columns]])
        found[row, columns] = np.linalg.lstsq(a, b, rcond=None)[0]
    return found


def rise_of_one(inputs, damping, column):
    """By how much the loss of a weight of 1 rises if it is pruned, the others refitted."""
    k = inputs.shape[1]
    weights = np.zeros((1, k))
    weights[0, column] = 1.0
    mask = np.ones((1, k), bool)
    mask[0, column] = False
    moved = updated(weights, mask, inputs, damping) - weights
    pull = damping * (inputs**2).mean()
    return float((moved @ (inputs.T @ inputs / len(inputs) + pull * np.eye(k)) @ moved.T).item())

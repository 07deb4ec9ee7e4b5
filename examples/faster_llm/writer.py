"""A loop that writes tokens, with one replay of a CUDA graph for each."""

from collections.abc import Callable

import torch
from torch import nn
from transformers import StaticCache

from prunecast.validation.torch_models.timing import captured

Choose = Callable[[torch.Tensor], torch.Tensor]


class Writer:
    """A model with a cache of a fixed size, which writes one token of each sequence after another.

    On a GPU a step is a CUDA graph of the compiled model.
    """

    def __init__(self, model: nn.Module, tokens: int, device: str, batch: int = 1) -> None:
        self.tokens = tokens
        self.token = torch.zeros((batch, 1), dtype=torch.int64, device=device)
        self.place = torch.zeros((1, 1), dtype=torch.int64, device=device)
        self.cache = StaticCache(config=model.config, max_cache_len=tokens)
        made = torch.compile(model) if device == "cuda" else model
        self._logits(made)  # makes the tensors of the cache
        self.step = captured(lambda: self._logits(made))

    def _logits(self, model: nn.Module) -> torch.Tensor:
        for layer in self.cache.layers:
            if hasattr(layer, "cumulative_length"):
                layer.cumulative_length.copy_(self.place[0, 0])
        places = self.place.expand(len(self.token), 1)
        found: torch.Tensor = model(
            self.token, past_key_values=self.cache, cache_position=self.place[0], position_ids=places
        ).logits
        return found[:, -1]

    @torch.no_grad()
    def write(self, prompt: torch.Tensor, choose: Choose) -> torch.Tensor:
        """Return the prompt (batch, n) and what follows, shape (batch, tokens).

        Parameters
        ----------
        choose : logits (batch, vocabulary) -> the next token of each sequence, shape (batch,)
        """
        written = prompt.new_zeros((len(prompt), self.tokens))
        given = prompt.shape[1]
        written[:, :given] = prompt
        for place in range(self.tokens - 1):
            self.token.copy_(written[:, place : place + 1])
            self.place.fill_(place)
            logits = self.step()
            if place + 1 >= given:
                written[:, place + 1] = choose(logits)
        return written

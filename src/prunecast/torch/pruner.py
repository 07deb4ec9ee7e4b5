"""`Pruner`: prune a PyTorch model while it trains, and write a folder that `prunecast predict` reads.

pruner = Pruner(model, "atp:128", schedule=gradual(0.75, updates=8, every=100))
pruner.prepare()
for batch in batches:
    ...  # forward, backward
    optimizer.step()
    pruner.step()
pruner.finalize("pruned")
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from prunecast.codesign.schedule import SparsitySchedule, one_shot
from prunecast.codesign.schedule_masks import MaskPath
from prunecast.codesign.schedule_run import EVERYTHING, ScheduleRun, Update
from prunecast.errors import BadInput
from prunecast.patterns import parse_pattern
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.sources.weight_set import select_names
from prunecast.patterns.tile_map import MaskArray
from prunecast.torch.importance import Importance, Scores, as_mask_tensor, prunable
from prunecast.torch.save import save

REST = "rest"
"""Name of the group of layers that no named group contains."""


class Pruner:
    """Pruner of the weights of a model while it trains, with masks that follow a schedule.

    Gradients of pruned weights are set to zero in the backward pass, so that they affect neither gradient
    norms nor momentum. The masks are applied again after every optimizer step.

    Parameters
    ----------
    model : model whose linear and convolution layers are pruned in place; their weights are treated as
        matrices (M, K)
    pattern : pattern string
    sparsity : final sparsity if no schedule is given; None for patterns with a fixed one
    schedule : sparsity as a function of training steps; None to prune once, in `prepare`
    target, ignore : weights to include and to leave out, by state-dict name or `re:` and a regular expression
    importance : `magnitude`, `squared`, `taylor`, a function of a layer's name and weights (M, K), or a
        mapping of layers to scores
    scope : `layer` to rank the weights of each layer separately, or `global` to rank those of all layers that
        are pruned at the same time
    way : method for intermediate masks, `stepwise` or `towards`, see `codesign.schedule_masks`; None for the
        one that suits the pattern
    groups : name -> selectors of weights. A schedule with floors (least values of `metric`) prunes these
        groups of layers one after another
    metric : function that measures the model, where more is better; required by schedules with floors
    final : layer -> final mask, for all layers, if these masks are known, e.g. from `prunecast prune
        --latency`. The weights outside of them are pruned in the order of their importance, the least
        important first, and `pattern` is used only in the recipe
    teacher : function that returns the target outputs for `distance`, usually a copy of the dense model; it
        is not trained

    Raises
    ------
    BadInput : one of these arguments cannot be used
    """

    def __init__(
        self,
        model: nn.Module,
        pattern: str,
        sparsity: float | None = None,
        *,
        schedule: SparsitySchedule | None = None,
        target: Sequence[str] = (),
        ignore: Sequence[str] = (),
        importance: Scores = "magnitude",
        scope: str = "layer",
        way: str | None = None,
        groups: Mapping[str, Sequence[str]] | None = None,
        metric: Callable[[], float] | None = None,
        final: Mapping[str, MaskArray] | None = None,
        teacher: Callable[..., torch.Tensor] | None = None,
    ) -> None:
        rule = parse_pattern(pattern)
        self.model = model
        if schedule is None:
            schedule = one_shot(rule.sparsity_to_prune(sparsity))
        elif sparsity is not None and sparsity != schedule.sparsity:
            raise BadInput(
                f"sparsity must be that of the schedule, {schedule.sparsity}, or None, got {sparsity}"
            )
        self.schedule = schedule
        if schedule.has_floor and metric is None:
            raise BadInput("a schedule with a floor needs a metric, got none")
        self.parameters = prunable(model, target, ignore)
        self.groups = _groups(self.parameters, groups)
        if final is not None:
            if set(final) != set(self.parameters):
                other = sorted(set(final) ^ set(self.parameters))[0]
                raise BadInput(
                    f"final masks must be of the layers that are pruned, got another set: {other!r}"
                )
            _check_shapes("final mask", final, self.parameters)
        self.path = MaskPath(rule, self.schedule.sparsity, scope=scope, way=way, final=final)
        self.run = ScheduleRun(self.schedule, tuple(self.groups))
        self.importance = Importance(importance, self.parameters)
        self.teacher = teacher
        self.first: dict[str, ImportanceArray] = {}
        """Layer -> importance (M, K) of its weights immediately before it was first pruned."""
        self._has_final = final is not None
        if self._has_final:
            self.first = {name: self.importance.of(name) for name in self.parameters}
        self._metric = metric
        self._masks: dict[str, torch.Tensor] = {}
        self._hooks = [each.register_hook(self._hook(name)) for name, each in self.parameters.items()]

    @property
    def masks(self) -> dict[str, MaskArray]:
        """Layer -> bool mask (M, K), for the layers that are already pruned."""
        return dict(self.path.masks)

    @property
    def finished(self) -> bool:
        """True if the schedule is at its end, so that no mask will change."""
        return self.run.finished

    def prepare(self, masks: Mapping[str, MaskArray] | None = None) -> None:
        """Start the schedule, before the first training step. A schedule without a delay prunes now.

        Parameters
        ----------
        masks : layer -> bool mask (M, K) of the first stage, if these masks are already known; else None

        Raises
        ------
        BadInput : this is the second call, the masks do not fit, or the importance cannot rank weights
        """
        update = self.run.begin()
        if masks is not None:
            self._take(masks, update)
        elif update is not None:
            self._prune(update)

    def step(self) -> bool:
        """Count a training step, apply the masks, and return whether they changed.

        This must be called after every `optimizer.step()`.

        Raise BadInput if masks are due and the importance cannot rank weights, or if `metric` returns no
        number.
        """
        self.apply()
        update = self.run.advance(self._metric)
        if update is not None:
            self._prune(update)
        return update is not None

    def apply(self) -> None:
        """Set pruned weights to zero again."""
        with torch.no_grad():
            for name, mask in self._masks.items():
                self.parameters[name].mul_(mask)

    def distance(self, logits: torch.Tensor, *inputs: torch.Tensor, temperature: float = 1.0) -> torch.Tensor:
        """Return the KL divergence of `logits` (..., classes) from the teacher's outputs, to be added to the
        loss.

        Parameters
        ----------
        inputs : arguments of the teacher
        temperature : divides the logits; its square multiplies the divergence (Hinton et al., 2015)

        Raises
        ------
        BadInput : there is no teacher, or it returns another shape
        """
        if self.teacher is None:
            raise BadInput("distillation needs the dense model: Pruner(..., teacher=copy.deepcopy(model))")
        with torch.no_grad():
            wanted = self.teacher(*inputs)
        if wanted.shape != logits.shape:
            raise BadInput(f"distance: the teacher gives {tuple(wanted.shape)}, got {tuple(logits.shape)}")
        student, teacher = (
            (x.float() / temperature).log_softmax(-1).flatten(0, -2) for x in (logits, wanted)
        )
        apart = nn.functional.kl_div(student, teacher, log_target=True, reduction="batchmean")
        return apart * temperature**2

    def state_dict(self) -> dict[str, Any]:
        """Return all state that a training run needs to continue: tensors and plain values, for `torch.save`.

        The states of the model and of the optimizer are not included; a teacher and functions must be passed
        again.
        """
        return {
            "pattern": self.path.pattern.canonical,
            "schedule": self.schedule.document(),
            "layers": {name: list(parameter.shape) for name, parameter in self.parameters.items()},
            "run": self.run.state(),
            "path": {part: _tensors(arrays) for part, arrays in self.path.state().items()},
            "first": _tensors(self.first),
            "masks": {name: mask.bool() for name, mask in self._masks.items()},
            "gathered": dict(self.importance.gathered),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the state of another `Pruner` with the same arguments, instead of calling `prepare`.

        Raises
        ------
        BadInput : the state is of another pattern, schedule or model
        """
        own = self.state_dict()
        for part in ("pattern", "schedule", "layers"):
            if (got := state.get(part)) != own[part]:
                raise BadInput(f"state of a pruner: {part} must be {own[part]!s:.120}, got {got!s:.120}")
        self.run.take_state(state["run"])
        self.path.take_state(state["path"])
        self.first = {name: scores.numpy() for name, scores in state["first"].items()}
        like = self.parameters
        self._masks = {n: m.to(like[n].device, like[n].dtype) for n, m in state["masks"].items()}
        self.importance.gathered.update({n: t.to(like[n].device) for n, t in state["gathered"].items()})
        if not self.path.masks:  # states of earlier releases have no masks there if final ones are given
            self.path.masks = {n: m.flatten(1).cpu().numpy() for n, m in state["masks"].items()}
        self.apply()

    def finalize(self, out: str | Path) -> Path:
        """Write the folder `out` with weights, recipe and tile maps, and remove the hooks from the model.

        Raises
        ------
        BadInput : nothing is pruned yet, or the folder cannot be written
        """
        if not self._masks:
            raise BadInput("finalize: wanted a model with pruned layers, got none; call prepare first")
        self.apply()
        self.close()
        return save(out, self.model, self.path.pattern, self.masks, self.first, self._facts())

    def _facts(self) -> dict[str, Any]:
        return {
            "sparsity": self.schedule.sparsity,
            "scope": self.path.scope,
            "criterion": self.importance.name,
            "seed": None,
            "way": self.path.way,
            "schedule": self.schedule.document(),
            "steps": self.run.step,
            "groups": self.groups,
            "stopped": self.run.stopped,
            "measured": [measured.row() for measured in self.run.measured],
        }

    def close(self) -> None:
        """Remove the hooks from the model; masks are no longer applied."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def _hook(self, name: str) -> Callable[[torch.Tensor], torch.Tensor | None]:
        def mask_gradient(gradient: torch.Tensor) -> torch.Tensor | None:
            self.importance.gather(name, gradient)
            mask = self._masks.get(name)
            return None if mask is None else gradient * mask

        return mask_gradient

    def _prune(self, update: Update) -> None:
        layers = [name for group in update.groups for name in self.groups[group]]
        scores = {name: self.first[name] if self._has_final else self.importance.of(name) for name in layers}
        self._use(scores, self.path.advance(scores, update.sparsity))

    def _take(self, masks: Mapping[str, MaskArray], update: Update | None) -> None:
        if update is None or set(masks) != set(self.parameters):
            raise BadInput("prepare: masks must be of every layer, for a schedule without a delay")
        _check_shapes("prepare: mask", masks, self.parameters)
        for mask in masks.values():
            self.path.pattern.map(mask)
        self.path.masks.update(masks)
        self._use({name: self.importance.of(name) for name in masks}, masks)

    def _use(self, scores: Mapping[str, ImportanceArray], masks: Mapping[str, MaskArray]) -> None:
        for name, mask in masks.items():
            self.first.setdefault(name, scores[name])
            self._masks[name] = as_mask_tensor(mask, self.parameters[name])
        self.apply()


def _tensors(arrays: Mapping[str, npt.NDArray[Any]]) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}


def _check_shapes(what: str, masks: Mapping[str, MaskArray], parameters: Mapping[str, nn.Parameter]) -> None:
    for name, parameter in parameters.items():
        wanted = (parameter.shape[0], parameter[0].numel())
        if masks[name].shape != wanted:
            raise BadInput(f"{what} of {name!r} must have shape {wanted}, got {masks[name].shape}")


def _groups(
    parameters: Mapping[str, nn.Parameter], groups: Mapping[str, Sequence[str]] | None
) -> dict[str, list[str]]:
    if groups is None:
        return {EVERYTHING: list(parameters)}
    found = {group: select_names(parameters, selectors) for group, selectors in groups.items()}
    taken = [name for names in found.values() for name in names]
    if twice := [name for name in taken if taken.count(name) > 1]:
        raise BadInput(f"groups: {twice[0]!r} must be in one group, got two")
    rest = [name for name in parameters if name not in taken]
    return {**found, REST: rest} if rest else found

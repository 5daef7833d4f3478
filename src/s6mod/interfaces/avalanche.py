"""S6MOD, its controls or a branch of one's own as a plugin for any supervised strategy of Avalanche.

The plugin adds the branch's terms to the strategy's loss. It reads the model's last feature map by a hook, so the model
stays as it is. Parameters of the branch have an optimiser of their own, of the kind and settings of the strategy's.
"""

from inspect import signature
from typing import Any

import torch
from avalanche.core import SupervisedPlugin
from torch import Tensor, nn
from torch.utils.data import DataLoader

from s6mod.branch import Branch, BranchConfig, BranchShape, Tap, Targets, branches
from s6mod.errors import InputError
from s6mod.learner import Learner
from s6mod.random import generator, seeded


class BranchPlugin(SupervisedPlugin):  # type: ignore[misc]
    """``layer``: the name of the module in the model whose output is the last feature map, (B, C, H, W).

    ``branch``: a name, or options with a name, as a ``Learner`` takes it. It is made at the first batch, when the
    shapes are known, and lies in ``branch`` from then on; ``terms`` are those of the latest batch.
    """

    def __init__(self, layer: str, branch: str | dict[str, Any] | BranchConfig = "s6mod", seed: int = 0) -> None:
        super().__init__()
        self.layer = layer
        self.config = branches.configure(branch)
        self.seed = seed
        self.branch: Branch | None = None
        self.optimizer: torch.optim.Optimizer | None = None
        self.terms: dict[str, float] = {}
        self._outputs = 0  # of the model that the branch was made for
        self._draws: torch.Generator | None = None
        self._held: Any = None  # what a checkpoint had, until the branch is made again
        self._hook: Any = None
        self._map: Tensor | None = None

    def before_forward(self, strategy: Any, **kwargs: Any) -> None:
        """Listen to the layer while the strategy runs the model."""
        modules: dict[str, nn.Module] = dict(strategy.model.named_modules())
        if self.layer not in modules:
            known = ", ".join(name for name in modules if name and "." not in name)
            raise InputError(f"expected the name of a layer of the model, got {self.layer!r}; it has {known}")
        self._map, self._hook = None, modules[self.layer].register_forward_hook(self._listen)

    def _listen(self, module: nn.Module, inputs: Any, output: Tensor) -> None:
        if self._map is None:  # the first pass gives mb_output; ER_ACE then makes one for its memory
            self._map = output

    def after_forward(self, strategy: Any, **kwargs: Any) -> None:
        """Listen no longer."""
        self._hook.remove()
        self._hook = None

    def before_backward(self, strategy: Any, **kwargs: Any) -> None:
        """Add the terms to the loss."""
        seen, self._map = self._map, None
        if seen is None or seen.ndim != 4:
            got = "nothing" if seen is None else f"shape {tuple(seen.shape)}"
            raise InputError(f"expected a feature map (B, C, H, W) from {self.layer!r}, got {got}; name another layer")
        branch = self.branch or self._make(seen, strategy)
        if (outputs := strategy.mb_output.shape[1]) != self._outputs:
            raise InputError(
                f"expected a model of {self._outputs} outputs, as at first, got {outputs}; give it all of them at once"
            )
        terms = branch.losses(Tap(seen, strategy.mb_output, Targets(strategy.mb_y), _no_view), self._draws)
        strategy.loss = strategy.loss + sum(terms.values())
        self.terms = {name: term.item() for name, term in terms.items()}
        if self.optimizer is not None:
            self.optimizer.zero_grad()

    def after_update(self, strategy: Any, **kwargs: Any) -> None:
        """Step with the strategy."""
        if self.optimizer is not None:
            self.optimizer.step()

    def _make(self, seen: Tensor, strategy: Any) -> Branch:
        (channels, height, width), self._outputs = seen.shape[1:], strategy.mb_output.shape[1]
        branches[self.config.name].check(self.config, self._outputs)
        with seeded(self.seed, "branch 0"):
            shape = BranchShape(channels, (height, width), self._outputs)
            branch = branches[self.config.name].build(self.config, shape).to(seen.device).train()
        if branch.wants_fresh_view:
            raise InputError("expected a branch that needs no fresh view, got one that does; set view='shared'")
        self.branch, self._draws = branch, generator(self.seed, "branch", seen.device)
        if parameters := list(branch.parameters()):
            kind, settings = type(strategy.optimizer), strategy.optimizer.defaults
            taken = settings.keys() & signature(kind).parameters  # AdamW has a default that it does not take
            self.optimizer = kind(parameters, **{name: settings[name] for name in taken})
        if self._held is not None:
            tensors, moments, draws = self._held
            branch.load_state_dict(tensors)
            self._draws.set_state(draws)
            if self.optimizer is not None:
                self.optimizer.load_state_dict(moments)
            self._held = None
        return branch

    def __getstate__(self) -> dict[str, Any]:
        """Plain values and tensors, for checkpoints, which pickle."""
        held = self._held
        if self.branch is not None and self._draws is not None:
            moments = None if self.optimizer is None else self.optimizer.state_dict()
            held = self.branch.state_dict(), moments, self._draws.get_state()
        unmade = {"branch": None, "optimizer": None, "_draws": None, "_hook": None, "_map": None}
        return self.__dict__ | unmade | {"config": self.config.plain(), "_held": held}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state | {"config": branches.configure(state["config"])}


def _no_view() -> Tensor:
    raise InputError("expected a branch that needs no fresh view, got one that asks for it; take another branch")


class LearnerAgent:
    """A learner in a loop over experiences; ``batch_size`` images at a time, in the order of the experience."""

    def __init__(self, learner: Learner, batch_size: int = 10) -> None:
        self.learner = learner
        self.batch_size = batch_size

    def train(self, experience: Any) -> None:
        """Learn the images of an experience, (C, H, W) floats in [0, 1]; online ones are most often one batch."""
        for x, y, *_ in DataLoader(experience.dataset, self.batch_size):
            self.learner.learn(x, y)

    def eval(self, stream: Any) -> list[float]:
        """The accuracy on each experience of a stream, in percent."""
        whole = [next(iter(DataLoader(experience.dataset, len(experience.dataset)))) for experience in stream]
        return [self.learner.evaluate(x, y) for x, y, *_ in whole]

"""A branch as a plugin of Avalanche's strategies, and a learner in its online loop."""

import importlib.util
import sys
from collections import OrderedDict

import pytest
import torch
from torch import nn

from s6mod import Learner
from s6mod.errors import InputError

if importlib.util.find_spec("avalanche") is None:
    pytest.skip("needs Avalanche: run by test_interfaces_elsewhere.py", allow_module_level=True)

from avalanche.benchmarks import split_online_stream, tensors_benchmark
from avalanche.checkpointing import maybe_load_checkpoint, save_checkpoint
from avalanche.training.plugins import EvaluationPlugin
from avalanche.training.supervised import AGEM, DER, ER_ACE, EWC, GDumb, LwF, Naive, Replay

from s6mod.interfaces.avalanche import BranchPlugin, LearnerAgent

pytestmark = [pytest.mark.extras, pytest.mark.filterwarnings("ignore")]

SMALL = {"name": "s6mod", "d_inner": 8, "num_patterns": 3, "state_dim": 4, "dt_rank": 3}
SILENT = SMALL | {"weight_dr": 0.0, "alpha": 0.0, "beta": 0.0, "weight_z": 0.0}


@pytest.fixture
def benchmark(digits):
    """Digits in two experiences of two classes."""

    def pairs(images, labels, most):
        found = [(labels == first) | (labels == first + 1) for first in (0, 2)]
        return [(images[here][:most].float() / 255, labels[here][:most]) for here in found]

    train = pairs(digits.train_images, digits.train_labels, 40)
    return tensors_benchmark(train, pairs(digits.test_images, digits.test_labels, 20), task_labels=[0, 0])


def network():
    convolution = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU())
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))
    return nn.Sequential(OrderedDict(backbone=convolution, head=head))


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def made(kind, *plugins, optimizer=sgd, **options):
    torch.manual_seed(0)
    model = network()
    optimizer = optimizer(model.parameters())
    options |= {"train_mb_size": 10, "plugins": list(plugins), "evaluator": EvaluationPlugin()}
    return kind(model=model, optimizer=optimizer, criterion=nn.CrossEntropyLoss(), **options)


def train(strategy, stream):
    for experience in stream:
        torch.manual_seed(1)
        strategy.train(experience)
    return strategy


def weights(strategy):
    return torch.cat([parameter.detach().flatten() for parameter in strategy.model.parameters()])


STRATEGIES = {
    Naive: {},
    Replay: {"mem_size": 20},
    EWC: {"ewc_lambda": 1.0},
    LwF: {"alpha": 1.0, "temperature": 2.0},
    AGEM: {"patterns_per_exp": 10, "sample_size": 10},
    GDumb: {"mem_size": 20},
    DER: {"mem_size": 20, "batch_size_mem": 5},
    ER_ACE: {"mem_size": 20, "batch_size_mem": 5},
}


@pytest.mark.parametrize("kind", STRATEGIES)
def test_s6mod_and_the_penalty_teach_the_model_of_any_strategy(benchmark, kind):
    options = dict(STRATEGIES[kind])
    found = {}
    for name, branch in (("none", None), ("s6mod", SMALL), ("confidence", "confidence")):
        plugins = [] if branch is None else [BranchPlugin("backbone", branch)]
        found[name] = weights(train(made(kind, *plugins, **options), benchmark.train_stream))
        for plugin in plugins:
            assert all(torch.isfinite(torch.tensor(term)) for term in plugin.terms.values())
            assert set(plugin.terms) == ({"dr", "diff", "cont", "z"} if name == "s6mod" else {"confidence"})
    assert not torch.equal(found["none"], found["s6mod"])
    assert not torch.equal(found["confidence"], found["s6mod"])


def test_the_branch_itself_learns_and_the_model_keeps_no_hook(benchmark):
    plugin = BranchPlugin("backbone", SMALL)
    strategy = made(Naive, plugin)
    states = []
    for experience in benchmark.train_stream:
        train(strategy, [experience])
        states.append({name: value.clone() for name, value in plugin.branch.named_parameters()})
    assert all(not torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert not strategy.model.backbone._forward_hooks


def test_with_all_weights_at_0_the_model_learns_as_without_to_the_bit(benchmark):
    plain = train(made(Naive), benchmark.train_stream)
    silent = train(made(Naive, BranchPlugin("backbone", SILENT)), benchmark.train_stream)
    assert torch.equal(weights(silent), weights(plain))


@pytest.mark.parametrize("optimizer", [sgd, torch.optim.AdamW])
@pytest.mark.parametrize("branch", [SMALL | {"noisy_gate": True}, "confidence"], ids=["s6mod", "confidence"])
def test_from_a_checkpoint_of_avalanche_a_new_strategy_goes_on_to_the_bit(
    benchmark, tmp_path, monkeypatch, optimizer, branch
):
    for module in ("sgd", "adamw"):  # torch takes these names away; dill, by which checkpoints are written, looks there
        monkeypatch.setattr(torch.optim, module, sys.modules[f"torch.optim.{module}"], raising=False)
    first, second = benchmark.train_stream
    plugin = BranchPlugin("backbone", branch)
    straight = train(made(Naive, plugin, optimizer=optimizer), [first])
    save_checkpoint(straight, tmp_path / "checkpoint")
    fresh = made(Naive, BranchPlugin("backbone", branch, seed=9), optimizer=optimizer)
    again, position = maybe_load_checkpoint(fresh, tmp_path / "checkpoint")
    assert position == 1
    for name in ("once more", "and on"):  # a checkpoint of what was loaded and not used has the same
        save_checkpoint(again, tmp_path / name)
        again, _ = maybe_load_checkpoint(made(Naive, optimizer=optimizer), tmp_path / name)
    for strategy in (straight, again):
        train(strategy, [second])
    assert torch.equal(weights(again), weights(straight))
    (loaded,) = (one for one in again.plugins if isinstance(one, BranchPlugin))
    assert loaded.seed == plugin.seed
    for name, value in plugin.branch.state_dict().items():
        assert torch.equal(loaded.branch.state_dict()[name], value), name


def test_the_branch_has_an_optimiser_like_the_strategys(benchmark):
    plugin = BranchPlugin("backbone", SMALL)
    train(made(Naive, plugin, optimizer=lambda it: torch.optim.AdamW(it, lr=0.02)), benchmark.train_stream[:1])
    assert isinstance(plugin.optimizer, torch.optim.AdamW)
    assert plugin.optimizer.defaults["lr"] == 0.02


def test_a_model_whose_outputs_grow_is_refused_in_one_sentence(benchmark):
    strategy = train(made(Naive, BranchPlugin("backbone", SMALL)), benchmark.train_stream[:1])
    strategy.model.head[-1] = nn.Linear(8, 6)
    with pytest.raises(InputError, match="expected a model of 4 outputs, as at first, got 6; give it all of them"):
        train(strategy, benchmark.train_stream[1:])


@pytest.mark.parametrize(
    ("layer", "branch", "sentence"),
    [
        ("trunk", SMALL, "expected the name of a layer of the model, got 'trunk'; it has backbone, head"),
        ("head", SMALL, r"expected a feature map \(B, C, H, W\) from 'head', got shape \(10, 4\); name another layer"),
        ("backbone", SMALL | {"view": "fresh"}, "expected a branch that needs no fresh view, got one that does"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(benchmark, layer, branch, sentence):
    with pytest.raises(InputError, match=sentence):
        train(made(Naive, BranchPlugin(layer, branch)), benchmark.train_stream)


def test_a_learner_in_the_online_loop_learns_as_it_does_alone(benchmark):
    def tiny():
        return Learner({"name": "er", "network": {"width": 2}, "memory_batch": 4}, memory_size=20, seed=3)

    agent, alone = LearnerAgent(tiny()), tiny()
    stream = split_online_stream(benchmark.train_stream, experience_size=10, shuffle=False)
    for experience in stream:
        agent.train(experience)
    for experience in benchmark.train_stream:
        images = torch.stack([x for x, *_ in experience.dataset])
        labels = torch.tensor([int(y) for _, y, *_ in experience.dataset])
        for start in range(0, len(labels), 10):
            alone.learn(images[start : start + 10], labels[start : start + 10])
    test = torch.stack([x for x, *_ in benchmark.test_stream[0].dataset])
    assert torch.equal(agent.learner.predict_proba(test), alone.predict_proba(test))
    assert all(0 <= share <= 100 for share in agent.eval(benchmark.test_stream))

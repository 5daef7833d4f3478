"""What predicts: statistics of the memory (what they are of, what they leave alone), score tables, seen classes."""

import pytest
import torch
from states import assert_same_tree
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

import learners
from s6mod import Learner
from s6mod.branch import S6MOD
from s6mod.data import load
from s6mod.engine import evaluate
from s6mod.engine.evaluate import ensemble
from s6mod.errors import ConfigError
from s6mod.methods import methods
from s6mod.methods.er import ER

DIGITS = load("digits")
IMAGES, LABELS = DIGITS.train_images[:, :, ::2, ::2], DIGITS.train_labels  # 16x16


def learned(method="er", branch=None, steps=8, after=None, **options):
    options = {"num_classes": 10, "memory_size": 30, "engine": {"device": "cpu"}} | options
    own = {"gdumb": {"passes": 2}, "mir": {"memory_batch": 20}}.get(method, {})  # quick; fewer than the memory has
    learner = Learner({"name": method, "network": {"width": 4}, **own}, branch, **options)
    for step in range(steps):
        rows = slice(6 * step, 6 * step + 6)
        learner.learn(IMAGES[rows], LABELS[rows])
        if after is not None:
            after(learner)
    return learner


def test_a_layer_has_the_mean_and_variance_of_what_the_memory_sends_through_it():
    learner = learned(statistics="memory")
    stem = learner.predictor().peers[0].network.stem
    sent = stem[0](learner.method.prepare(learner.memory.images[:30]))  # (30, 4, 16, 16)
    torch.testing.assert_close(stem[1].running_mean, sent.mean((0, 2, 3)))
    torch.testing.assert_close(stem[1].running_var, sent.var((0, 2, 3)))


def test_what_it_predicts_is_what_a_network_would_that_last_saw_the_memory_at_once():
    learner = learned(statistics="memory")
    x = IMAGES[100:140]
    predicted = learner.scores(x)["head"]
    network = learner.peers[0].network
    for layer in network.modules():
        if isinstance(layer, _BatchNorm):
            layer.momentum = 1.0
    network(learner.method.prepare(learner.memory.images[:30]))
    expected = network.eval()(learner.method.prepare(x)).logits
    torch.testing.assert_close(predicted, expected)


def test_a_memory_too_large_for_one_pass_is_averaged_over_equal_samples_of_it(monkeypatch):
    monkeypatch.setattr(evaluate, "CALIBRATION_BATCH", 12)
    learner = learned(statistics="memory")
    stem = learner.predictor().peers[0].network.stem
    sent = stem[0](learner.method.prepare(learner.memory.images[:30]))
    shares = [sent[share::3] for share in range(3)]
    torch.testing.assert_close(stem[1].running_mean, torch.stack([s.mean((0, 2, 3)) for s in shares]).mean(0))
    torch.testing.assert_close(stem[1].running_var, torch.stack([s.var((0, 2, 3)) for s in shares]).mean(0))


@pytest.mark.parametrize("method", learners.ONE_PAIR)
def test_all_tables_are_by_the_memory_and_learning_goes_on_as_if_never_asked(method):
    def look(learner):
        learner.scores(IMAGES[:5])

    branch = {"name": "s6mod", "d_inner": 12, "num_patterns": 3} if methods[method].has_logits else None
    asked = learned(method, branch, 4, look, statistics="memory")
    silent = learned(method, branch, 4)
    assert_same_tree(asked.state_dict(), silent.state_dict())
    ours, theirs = asked.scores(IMAGES[100:110]), silent.scores(IMAGES[100:110])
    assert ours.keys() == theirs.keys()
    for name, table in ours.items():
        assert table.isfinite().any()
        assert not torch.equal(table, theirs[name])


def test_predicting_draws_no_random_numbers_even_if_the_network_drops_features(monkeypatch):
    learner = learned(statistics="memory")
    learner.peers[0].network.stem.append(nn.Dropout(0.5))
    before = torch.get_rng_state()
    once = learner.scores(IMAGES[:5])["head"]
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(learner.predictor()(IMAGES[:5])["head"], once)


def test_one_image_in_memory_is_too_few_to_take_statistics_of():
    def first(**options):
        learner = Learner({"name": "er", "network": {"width": 4}}, num_classes=10, memory_size=1, **options)
        learner.learn(IMAGES[:6, :, ::2, ::2], LABELS[:6])  # the last map has come down to one place
        return learner.scores(IMAGES[:5, :, ::2, ::2])["head"]

    assert torch.equal(first(statistics="memory"), first())


def test_a_saved_learner_goes_on_predicting_by_the_memory(tmp_path):
    learner = learned(statistics="memory")
    learner.save(tmp_path / "saved")
    again = Learner.load(tmp_path / "saved")
    assert torch.equal(again.scores(IMAGES[:5])["head"], learner.scores(IMAGES[:5])["head"])


# --- score tables ---------------------------------------------------------------------------------------------

BRANCH = {"name": "s6mod", "d_inner": 12, "num_patterns": 3}
X = IMAGES[100:140]


@pytest.mark.parametrize(
    ("table", "unused"), [("head", {"ncm", "branch"}), ("ncm", {"branch"}), ("branch", {"ncm"}), ("ensemble", set())]
)
def test_a_prediction_computes_only_what_it_is_by(monkeypatch, table, unused):
    learner, whole = (learned("er", BRANCH, predict_by=by) for by in (table, "auto"))
    expected = whole.scores(X)
    expected["ensemble"] = ensemble(expected)
    if "branch" in unused:
        monkeypatch.setattr(S6MOD, "scores", lambda *_: pytest.fail("nobody asked the branch"))
    if "ncm" in unused:
        monkeypatch.setattr(type(learner.method), "reference", lambda *_: pytest.fail("nobody asked the memory"))
    assert torch.equal(learner.predict(X), expected[table].argmax(1))
    assert learner.primary == table


def test_the_ensemble_is_the_mean_of_the_standardised_tables():
    tables = learned("er", BRANCH, num_classes=12).scores(X)
    candidates = tables["ncm"].isfinite()
    assert candidates[0].sum() == 10
    found = ensemble(tables)
    for row in range(len(X)):
        scores = torch.stack([tables[name][row][candidates[row]] for name in ("head", "ncm", "branch")])
        standardised = (scores - scores.mean(1, keepdim=True)) / scores.std(1, keepdim=True, correction=0)
        torch.testing.assert_close(found[row][candidates[row]], standardised.mean(0), rtol=1e-4, atol=1e-4)
    assert found[~candidates].eq(-torch.inf).all()


def test_the_ensemble_does_not_depend_on_the_scale_of_a_table_and_bears_equal_scores():
    head, ncm = torch.tensor([[1.0, 3.0, 2.0]]), torch.tensor([[0.0, -1.0, -5.0]])
    once = ensemble({"head": head, "ncm": ncm, "heads": head})
    torch.testing.assert_close(once, ensemble({"head": 7 * head + 3, "ncm": ncm / 9}))
    assert torch.equal(ensemble({"head": torch.ones(1, 3)}), torch.zeros(1, 3))


@pytest.mark.parametrize("method", ["er", "mose", "er-ccldc"])
def test_everything_that_could_predict_is_named_and_is_what_would_predict(method):
    learner = learned(method, BRANCH, 4, average=0.9)
    found = learner.scores_by_all(X)
    names = {"head", "ncm", "branch", "ensemble"}
    names |= {"mose": {"heads", "moe"}, "er-ccldc": {"net1", "net2"}}.get(method, set())
    ways = [f"{w}/{s}" for w in ("latest", "averaged") for s in ("running", "memory")]
    assert found.keys() == {f"{way}/{name}" for way in ways for name in names}
    assert set(learner.config.tables) == names
    for weights, average in (("latest", None), ("averaged", 0.9)):
        for statistics in ("running", "memory"):
            alone = learned(method, BRANCH, 4, average=average, statistics=statistics, predict_by="ensemble")
            tables = alone.scores(X) | alone._tables(X, "ensemble")
            for by in names:
                assert torch.equal(tables[by], found[f"{weights}/{statistics}/{by}"])


def test_without_an_average_or_a_branch_there_are_fewer_tables():
    found = learned().scores_by_all(X)
    assert list(found) == [f"latest/{s}/{name}" for s in ("running", "memory") for name in ("head", "ncm", "ensemble")]
    with pytest.raises(ConfigError, match=r"^expected a learner with averaged weights, got one without; .*average="):
        learned().predictor("averaged")


def test_a_method_with_tables_of_its_own_alone_has_no_ensemble(monkeypatch):
    monkeypatch.setattr(ER, "scores", lambda self, outputs, reference: {"own": outputs[0].logits.float()})
    assert list(learned().scores_by_all(X)) == ["latest/running/own", "latest/memory/own"]


@pytest.mark.parametrize("by", ["head", "ncm", "branch", "ensemble"])
def test_only_seen_classes_are_chosen_from(by):
    seen, rows = [2, 7], torch.isin(LABELS, torch.tensor([2, 7])).nonzero().flatten()[:24]
    learner = Learner(
        {"name": "er", "network": {"width": 4}}, BRANCH, num_classes=10, memory_size=30, predict_by=by,
        predict_among="seen", engine={"device": "cpu"},
    )  # fmt: skip
    for part in rows.split(6):
        learner.learn(IMAGES[part], LABELS[part])
    shares = learner.predict_proba(X)
    assert shares.shape == (40, 10)
    torch.testing.assert_close(shares.sum(1), torch.ones(40))
    assert shares[:, seen].gt(0).all()
    assert shares.sum(0).nonzero().flatten().tolist() == seen
    assert set(learner.predict(X).tolist()) <= set(seen)
    for table in learner.scores(X).values():
        assert table[:, seen].isfinite().all()
        assert table.isfinite().sum() == 2 * len(X)


@pytest.mark.parametrize(
    ("method", "branch", "by"),
    [("er", None, "branch"), ("er", "confidence", "branch"), ("er", None, "moe"), ("mose", None, "net1")],
)
def test_a_table_that_is_not_there_is_refused_when_the_learner_is_made(method, branch, by):
    with pytest.raises(ConfigError, match=rf"^expected predict_by to name a score table .*, got '{by}'; choose one of"):
        Learner(method, branch, num_classes=10, predict_by=by)


@pytest.mark.parametrize(
    "options", [{"average": 0.0}, {"average": 1.0}, {"predict_among": "some"}, {"predict_with": "some"}]
)
def test_other_choices_are_refused_in_a_sentence(options):
    with pytest.raises(ConfigError, match=rf"^expected for '{next(iter(options))}'"):
        Learner("er", num_classes=10, **options)


def test_weights_that_are_not_kept_are_refused():
    with pytest.raises(ConfigError, match=r"^expected predict_with to name weights that are kept, got 'averaged'; .*"):
        Learner("er", num_classes=10, predict_with="averaged")


def test_probabilities_are_the_softmax_of_the_chosen_table_and_accuracy_is_in_percent():
    learner = learned()
    table, x = learner.scores(X)["head"], X.numpy()
    assert torch.equal(learner.predict_proba(X), table.softmax(1))
    assert (learner.predict_proba(x) == table.softmax(1).numpy()).all()
    guesses = learner.predict(X)
    labels = torch.cat([guesses[:30], (guesses[30:] + 1) % 10])
    assert learner.evaluate(X, labels) == learner.evaluate(x, labels.numpy()) == 75.0

"""A learner as a classifier of river."""

import functools
import io
import itertools
import pickle

import numpy as np
import pytest
from torch import nn

from learners import batch
from s6mod import Learner
from s6mod.errors import InputError

river = pytest.importorskip("river")
pd = pytest.importorskip("pandas")
from river import checks, compose, evaluate, metrics  # noqa: E402

from s6mod.interfaces.river import RiverLearner  # noqa: E402

pytestmark = pytest.mark.extras

TINY = {"name": "er", "network": {"width": 2}, "memory_batch": 4}


def stream(images=12):
    x, y = batch(0, (4, 2, 9), size=images)
    return [({"image": image, "hour": 3}, label) for image, label in zip(x.numpy(), y.tolist(), strict=True)]


def tiny(**options):
    return RiverLearner(TINY, seed=3, options={"memory_size": 12} | options)


def frame(samples):
    return pd.DataFrame({"image": [x["image"] for x, _ in samples]}, index=range(5, 5 + len(samples)))


class OnFeatures(RiverLearner):
    """The checks give features that are numbers: here they become an image of 8 x 8."""

    def _under_key(self, features):
        if not isinstance(features, dict):
            return [self._under_key(row) for row in features.to_dict("records")]
        row = np.array([features[name] for name in sorted(features)], dtype=np.float32)
        return np.resize(1 / (1 + np.exp(-row)), (8, 8))


# What a learner does not promise: that a batch is as many steps as it has images (river's own gradient models do not
# either), and that probabilities, which are float32, sum to 1 up to 1e-9.
EXCEPTIONS = {"check_learn_many_matches_learn_one", "check_predict_proba_one"}


def checks_of_river():
    """All but these, each on the first rows of its data."""
    for check in checks.yield_checks(OnFeatures(TINY)):
        if check.__name__ not in EXCEPTIONS:
            cut = {}
            if isinstance(check, functools.partial):
                cut["dataset"] = list(itertools.islice(check.keywords["dataset"], 5))
            yield pytest.param(functools.partial(getattr(check, "func", check), **cut), id=check.__name__)


@pytest.mark.parametrize("check", list(checks_of_river()))
def test_river_has_nothing_to_find_fault_with(check):
    check(OnFeatures(TINY, options={"memory_size": 12}))


def test_progressive_validation_learns_as_the_learner_does_on_single_images():
    samples = stream()
    learner, hits = Learner(TINY, seed=3, memory_size=12), 0
    for x, y in samples:
        hits += learner.steps > 0 and learner.predict(x["image"]) == y
        learner.learn(x["image"], y)
    model = tiny()
    metric = evaluate.progressive_val_score(samples, model, metrics.Accuracy())
    assert metric.get() == pytest.approx(hits / (len(samples) - 1))  # nobody is asked before the first image
    images = np.stack([x["image"] for x, _ in samples])
    assert np.array_equal(model.learner.predict_proba(images), learner.predict_proba(images))


def test_before_the_first_image_there_is_no_answer():
    ((x, _),) = stream(1)
    assert tiny().predict_one(x) is None
    assert tiny().predict_proba_one(x) == {}
    assert len(tiny().predict_many(frame([(x, 0)]))) == 0


def test_probabilities_are_by_label_and_labels_may_be_words():
    model = tiny()
    for x, y in stream():
        model.learn_one(x, f"class {y}")
    shares = model.predict_proba_one(x)
    assert list(shares) == ["class 4", "class 2", "class 9"]
    assert sum(shares.values()) == pytest.approx(1)
    assert model.predict_one(x) == max(shares, key=shares.get)


def test_labels_may_be_true_and_false_as_rivers_own_are():
    samples = [(x, y == 4) for x, y in stream()]
    model = tiny()
    metric = evaluate.progressive_val_score(samples, model, metrics.ROCAUC() + metrics.Accuracy())
    assert metric[1].cm.classes == [False, True]
    model.learn_many(frame(samples), pd.Series([y for _, y in samples]))
    assert model.learner.classes_ == [True, False]
    assert model.predict_proba_one(samples[0][0]).keys() == {True, False}


def test_many_images_are_one_batch_and_answers_keep_their_index():
    samples = stream()
    table, labels = frame(samples), pd.Series([y for _, y in samples])
    model = tiny()
    model.learn_many(table, labels)
    model.learn_many(table, labels)
    assert model.learner.steps == 2
    assert list(model.predict_many(table).index) == list(table.index)
    shares = model.predict_proba_many(table)
    assert list(shares.columns) == [4, 2, 9]
    assert (shares.idxmax(axis=1) == model.predict_many(table)).all()


def test_it_works_in_a_pipeline():
    model = compose.Select("image") | tiny()
    for x, y in stream(3):
        model.learn_one(x, y)
    assert model.predict_one(x) in (4, 2, 9)


class OnlyOurs(pickle.Unpickler):
    def find_class(self, module, name):
        assert (module, name) == ("s6mod.interfaces.river", "RiverLearner")
        return super().find_class(module, name)


def test_a_clone_knows_nothing_and_a_pickle_which_names_our_class_alone_goes_on_to_the_bit():
    model = tiny()
    for x, y in stream(4):
        model.learn_one(x, y)
    assert model.clone().learner.steps == 0
    again = OnlyOurs(io.BytesIO(pickle.dumps(model))).load()
    for one in (model, again):
        one.learn_one(x, y)
    assert again.predict_proba_one(x) == model.predict_proba_one(x)


def test_a_pickle_of_a_learner_with_a_network_of_ones_own_goes_on_to_the_bit():
    network = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU())
    model = RiverLearner({"name": "er", "memory_batch": 4}, seed=3, options={"memory_size": 12, "network": network})
    for x, y in stream(4):
        model.learn_one(x, y)
    again = pickle.loads(pickle.dumps(model))
    assert again.predict_proba_one(x) == model.predict_proba_one(x)


@pytest.mark.parametrize(
    ("features", "sentence"),
    [
        ({"length": 3.1, "width": 2.0}, "expected an image under the key 'image', got 'length', 'width'; put it there"),
        ({}, "expected an image under the key 'image', got nothing"),
        ({"image": 3.1}, r"expected images of shape \(N, C, H, W\)"),
        ({"image": np.zeros((2, 3, 8, 8), np.uint8)}, "expected one image under 'image', got a batch"),
    ],
)
def test_features_that_are_no_image_are_refused_in_one_sentence(features, sentence):
    for call in (lambda model: model.learn_one(features, 1), lambda model: model.predict_one(features)):
        model = tiny()
        with pytest.raises(InputError, match=sentence):
            call(model)
        assert model.learner.steps == 0

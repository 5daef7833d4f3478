"""A learner as a classifier of scikit-learn, and what the library's own checks say."""

import copy
import io
import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

from learners import batch, small
from s6mod.errors import InputError
from s6mod.interfaces.sklearn import LearnerClassifier

pytestmark = pytest.mark.extras

TINY = {"name": "er", "network": {"width": 2}, "memory_batch": 4, "augment": "none"}
OPTIONS = {"memory_size": 20}


class OnTables(LearnerClassifier):
    """The checks give tables of two columns and more, of any numbers: here a row becomes an image of 8 x 8."""

    def _images(self, rows, shape):
        grey = 1 / (1 + np.exp(-rows.astype(np.float32)))
        return super()._images(np.stack([np.resize(row, 64) for row in grey]), (1, 8, 8))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.positive_only = True, False
        tags.classifier_tags.poor_score = True  # a step for a hundred rows learns little
        return tags


@parametrize_with_checks([OnTables(TINY, batch_size=100, options=OPTIONS)])
def test_scikit_learn_has_nothing_to_find_fault_with(estimator, check):
    check(estimator)


def tiny(**parameters):
    return LearnerClassifier(TINY, options=OPTIONS, **parameters)


def stream(positions=4):
    """Images of 8 x 8 whose classes do not come in sorted order."""
    parts = [batch(position, ([7, 3], [5, 1])[position % 2], size=4) for position in range(positions)]
    return np.concatenate([x.numpy() for x, _ in parts]), np.concatenate([y.numpy() for _, y in parts])


def test_every_layout_gives_the_same():
    x, y = stream()
    expected = tiny().fit(x, y).predict_proba(x)
    last = np.moveaxis(x, 1, -1)
    flat = x.reshape(len(x), -1)
    floats = (flat / 255).astype(np.float32)
    for images, shape in [(last, None), (flat, (3, 8, 8)), (last.reshape(len(x), -1), (8, 8, 3)), (floats, (3, 8, 8))]:
        assert np.array_equal(tiny(image_shape=shape).fit(images, y).predict_proba(images), expected)
    grey = tiny(image_shape=(8, 8)).fit(flat[:, :64], y)
    assert (grey.n_features_in_, grey.learner_.image_shape) == (64, (3, 8, 8))


def test_three_grey_images_are_three():
    x, y = stream()
    grey = x[:, 0]
    model = tiny().fit(grey[:, None], y)
    assert (model.predict_proba(grey[:3]) == model.predict_proba(grey[:3, None])).all()
    assert (tiny().fit(grey, y).predict_proba(grey) == model.predict_proba(grey[:, None])).all()


def test_classes_are_sorted_and_the_columns_go_with_them():
    x, y = stream()
    model = tiny()
    model.partial_fit(x[:4], y[:4])  # nobody announced classes
    assert model.classes_.tolist() == [3, 7]
    model.partial_fit(x[4:8], y[4:8])
    assert model.classes_.tolist() == [1, 3, 5, 7]
    assert model.learner_.classes_ == [7, 3, 5, 1]
    shares = model.predict_proba(x)
    assert np.array_equal(shares, model.learner_.predict_proba(x)[:, [3, 1, 2, 0]])
    assert np.array_equal(model.classes_[shares.argmax(1)], model.predict(x))


def test_announced_classes_have_columns_before_they_come_and_others_may_come_all_the_same():
    x, y = stream()
    model = tiny().partial_fit(x[:4], y[:4], classes=[1, 3, 7])
    assert model.predict_proba(x).shape == (16, 3)
    assert (model.predict_proba(x)[:, 0] == 0).all()
    model.partial_fit(x[4:8], y[4:8])
    assert model.classes_.tolist() == [1, 3, 5, 7]
    with pytest.raises(InputError, match="announced at first, got 9; leave classes out"):
        model.partial_fit(x, y, classes=[1, 9])


def test_labels_may_be_words_and_whole_floats():
    x, y = stream()
    words = np.array(["bird", "cat"] * 8)
    model = tiny().fit(x, words)
    assert model.classes_.tolist() == ["bird", "cat"]
    assert set(model.predict(x)) <= {"bird", "cat"}
    assert 0 <= model.score(x, words) <= 1
    assert tiny().fit(x, y.astype(float)).classes_.tolist() == [1, 3, 5, 7]


def test_announced_classes_may_be_whole_floats_or_of_two_kinds():
    x, y = stream()
    model = tiny().partial_fit(x[:4], y[:4].astype(float), classes=np.unique(y.astype(float)))
    assert model.classes_.tolist() == [1, 3, 5, 7]
    mixed = tiny().partial_fit(x[:4], y[:4], classes=[7, "cat"])
    assert mixed.classes_.tolist() == [3, 7, "cat"]


def test_a_random_state_is_a_seed_or_drawn_as_scikit_learn_does():
    x, y = stream()
    first, second = (
        tiny(random_state=state).fit(x, y).learner_.config.seed
        for state in (np.random.RandomState(5), np.random.RandomState(5))
    )
    assert first == second
    assert tiny(random_state=np.int64(5)).fit(x, y).learner_.config.seed == 5
    assert tiny(random_state=None).fit(x, y).learner_.config.seed >= 0


def test_fit_forgets_and_partial_fit_goes_on():
    x, y = stream()
    model = tiny(batch_size=4).partial_fit(x, y)
    assert model.learner_.steps == 4
    assert model.partial_fit(x, y).learner_.steps == 8
    assert model.fit(x, y).learner_.steps == 4


def test_what_is_not_fitted_says_so_and_a_clone_is_not():
    x, y = stream()
    with pytest.raises(NotFittedError):
        tiny().predict(x)
    model = tiny(random_state=3).fit(x, y)
    again = clone(model)
    assert not hasattr(again, "classes_")
    assert again.get_params() == model.get_params()
    assert np.array_equal(again.fit(x, y).predict_proba(x), model.predict_proba(x))
    assert again.set_params(batch_size=2).batch_size == 2


class OnlyOurs(pickle.Unpickler):
    def find_class(self, module, name):
        assert (module, name) == ("s6mod.interfaces.sklearn", "LearnerClassifier")
        return super().find_class(module, name)


def test_a_pickle_names_our_class_alone_and_goes_on_to_the_bit():
    x, y = stream()
    model = tiny().fit(x, y)
    again = OnlyOurs(io.BytesIO(pickle.dumps(model))).load()
    for one in (model, again):
        one.partial_fit(x, y)
    assert np.array_equal(again.predict_proba(x), model.predict_proba(x))
    broken = copy.deepcopy(model.__getstate__())
    broken["learner_"] = {name: content[:-1] + b"?" for name, content in broken["learner_"].items()}
    with pytest.raises(Exception, match="damaged"):
        LearnerClassifier.__new__(LearnerClassifier).__setstate__(broken)


def test_a_clone_and_a_pickle_keep_a_network_of_ones_own():
    x, y = stream()
    network = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU())
    model = LearnerClassifier({"name": "er", "memory_batch": 4}, options=OPTIONS | {"network": network}).fit(x, y)
    for again in (pickle.loads(pickle.dumps(model)), clone(model).fit(x, y)):
        assert np.array_equal(again.predict_proba(x), model.predict_proba(x))


def test_it_works_in_pipelines_searches_and_cross_validation():
    x, y = stream()
    flat = x.reshape(len(x), -1).astype(float)
    line = make_pipeline(FunctionTransformer(lambda rows: rows / 255), tiny(image_shape=(3, 8, 8)))
    scores = cross_val_score(line, flat, y, cv=2, error_score="raise")
    assert ((scores >= 0) & (scores <= 1)).all()
    search = GridSearchCV(tiny(), {"batch_size": [4, 8]}, cv=2, error_score="raise").fit(x, y)
    assert search.best_params_["batch_size"] in (4, 8)


@pytest.mark.parametrize(
    ("shape", "sentence"),
    [
        (None, r"expected images, or rows .* got rows of 192 values; give image_shape=\(3, 8, 8\)"),
        (
            (3, 9, 9),
            r"expected rows of 243 values for images of shape \(3, 9, 9\), got rows of 192; give .*\(3, 8, 8\)",
        ),
        ((192,), r"expected image_shape as \(C, H, W\), \(H, W, C\) or \(H, W\), got \(192,\)"),
    ],
)
def test_rows_that_fit_no_shape_are_refused_in_one_sentence(shape, sentence):
    x, y = stream()
    with pytest.raises(InputError, match=sentence):
        tiny(image_shape=shape).fit(x.reshape(16, -1), y)


def test_a_length_that_no_square_image_has_is_refused_without_a_guess():
    x, y = stream()
    with pytest.raises(InputError, match=r"got rows of 190 values; give image_shape=\(C, H, W\)$"):
        tiny().fit(x.reshape(16, -1)[:, :190], y)


def test_bad_labels_change_nothing():
    x, y = stream()
    model = tiny(batch_size=4).fit(x, y)
    with pytest.raises(ValueError, match="Unknown label type"):
        model.partial_fit(x, y + np.linspace(0, 0.5, len(y)))
    assert model.learner_.steps == 4


def test_an_interface_predicts_what_the_learner_predicts():
    x, y = stream()
    learner = small("er", num_classes=None, method={"augment": "none"})
    model = LearnerClassifier(learner.config.method, batch_size=4, random_state=3, options={"memory_size": 12})
    for start in range(0, 16, 4):
        learner.learn(x[start : start + 4], y[start : start + 4])
    model.fit(x, y)
    assert np.array_equal(model.predict(x), learner.predict(x))
    assert np.array_equal(model.predict_proba(x)[:, [3, 1, 2, 0]], learner.predict_proba(x))

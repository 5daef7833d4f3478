"""A learner as a batch classifier of CapyMOA, in its own evaluation; skipped without the library or a JVM."""

import importlib.util
import shutil

import numpy as np
import pytest
import torch

from learners import batch
from s6mod import Learner
from s6mod.errors import InputError

if shutil.which("java") is None:
    pytest.skip("CapyMOA needs a JVM", allow_module_level=True)
if importlib.util.find_spec("capymoa") is None:
    pytest.skip("needs CapyMOA: run by test_interfaces_elsewhere.py", allow_module_level=True)
from capymoa.evaluation import prequential_evaluation
from capymoa.ocl.evaluation import ocl_train_eval_loop
from capymoa.stream import NumpyStream
from torch.utils.data import DataLoader, TensorDataset

from s6mod.interfaces.capymoa import CapyMOALearner

pytestmark = pytest.mark.extras

TINY = {"name": "er", "network": {"width": 2}, "memory_batch": 4}
SHAPE = (3, 8, 8)


@pytest.fixture
def arrays():
    """Rows of floats, as the library hands them on, and labels 0, 1, 2 that come in another order."""
    x, y = batch(0, (2, 0, 1), size=12)
    return x.reshape(12, -1).numpy().astype(np.float32) / 255, y.numpy()


def tiny(stream, **changes):
    return CapyMOALearner(
        stream.get_schema(), 3, TINY, **{"image_shape": SHAPE, "options": {"memory_size": 12}} | changes
    )


def test_prequential_evaluation_learns_and_predicts_as_the_learner_does(arrays):
    x, y = arrays
    learner, expected = Learner(TINY, seed=3, memory_size=12), []
    for start in range(0, 12, 4):
        images, labels = x[start : start + 4].reshape(4, *SHAPE), y[start : start + 4]
        expected += [0] * 4 if start == 0 else learner.predict(images).tolist()
        learner.learn(images, labels)
    stream = NumpyStream(x, y)
    model = tiny(stream)
    results = prequential_evaluation(stream, model, batch_size=4, store_predictions=True, optimise=False)
    assert list(results.predictions()) == expected
    assert results.cumulative.accuracy() == pytest.approx(100 * np.mean(np.array(expected) == y))
    images = x.reshape(12, *SHAPE)
    assert np.array_equal(model.learner.predict_proba(images), learner.predict_proba(images))


def test_the_loop_for_continual_learning_learns_and_predicts_as_the_learner_does(arrays):
    x, y = arrays
    tasks = [(x[y == 2], y[y == 2]), (x[y != 2], y[y != 2])]  # class 2 first
    learner = Learner(TINY, seed=3, memory_size=12)
    for rows, labels in tasks:
        for start in range(0, len(labels), 4):
            learner.learn(rows[start : start + 4].reshape(-1, *SHAPE), labels[start : start + 4])
    model = tiny(NumpyStream(x, y))
    loaders = [
        DataLoader(TensorDataset(torch.from_numpy(rows).reshape(-1, *SHAPE), torch.from_numpy(labels)), 4)
        for rows, labels in tasks
    ]
    found = ocl_train_eval_loop(model, loaders, loaders)
    shares = [learner.evaluate(rows.reshape(-1, *SHAPE), labels) / 100 for rows, labels in tasks]
    assert found.accuracy_matrix[-1].tolist() == pytest.approx(shares)
    assert found.accuracy_final == pytest.approx(np.mean(shares))
    images = x.reshape(12, *SHAPE)
    assert np.array_equal(model.learner.predict_proba(images), learner.predict_proba(images))


def test_columns_are_those_of_the_schema_and_0_for_a_class_that_has_not_come(arrays):
    x, y = arrays
    model = tiny(NumpyStream(x, y))
    rows = torch.from_numpy(x)
    assert not model.batch_predict_proba(rows).any()
    some = torch.from_numpy(y) != 1
    model.batch_train(rows[some], torch.from_numpy(y)[some])
    assert model.learner.classes_ == [2, 0]
    shares = model.batch_predict_proba(rows)
    assert (shares.shape, shares[:, 1].any().item()) == ((12, 3), False)
    assert torch.equal(shares.argmax(1), model.batch_predict(rows))


def test_single_instances_go_the_same_way(arrays):
    stream = NumpyStream(*arrays)
    model = tiny(stream)
    instance = stream.next_instance()
    model.train(instance)
    assert model.learner.steps == 1
    assert model.predict(instance) == instance.y_index


def test_rows_that_fit_no_shape_are_refused_in_one_sentence(arrays):
    x, y = arrays
    model = tiny(NumpyStream(x, y), image_shape=(1, 8, 8))
    with pytest.raises(
        InputError, match=r"expected rows of 64 values .* got rows of 192; give image_shape=\(3, 8, 8\)"
    ):
        model.batch_train(torch.from_numpy(x), torch.from_numpy(y))

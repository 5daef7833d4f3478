"""One learner, one stream, every interface: the same predictions to the bit."""

import importlib
import shutil

import numpy as np
import pytest
import torch

from s6mod import Learner

pytestmark = [pytest.mark.extras, pytest.mark.filterwarnings("ignore")]

METHOD = {"name": "er", "network": {"width": 4}, "memory_batch": 8, "augment": "none"}
BRANCH = {"name": "s6mod", "d_inner": 8, "num_patterns": 3, "state_dim": 4, "dt_rank": 3}
OPTIONS = {"memory_size": 40, "statistics": "memory"}
SEED, SIZE, SHAPE = 3, 8, (3, 16, 16)


def tiny():
    return Learner(METHOD, BRANCH, seed=SEED, **OPTIONS)


def in_order(learner, shares):
    """Columns in the order of the labels; a learner has them in order of arrival."""
    return np.asarray(shares)[:, np.argsort(learner.classes_)]


def plain(x, y):
    learner = tiny()
    for start in range(0, len(y), SIZE):
        learner.learn(x[start : start + SIZE], y[start : start + SIZE])
    return learner.predict(x), in_order(learner, learner.predict_proba(x))


def by_sklearn(x, y, _):
    from s6mod.interfaces.sklearn import LearnerClassifier

    model = LearnerClassifier(METHOD, BRANCH, image_shape=SHAPE, batch_size=SIZE, random_state=SEED, options=OPTIONS)
    rows = x.reshape(len(x), -1)
    model.partial_fit(rows[:40], y[:40]).partial_fit(rows[40:], y[40:])
    return model.predict(rows), model.predict_proba(rows)


def by_river(x, y, _):
    import pandas as pd

    from s6mod.interfaces.river import RiverLearner

    model = RiverLearner(METHOD, BRANCH, seed=SEED, options=OPTIONS)
    table, labels = pd.DataFrame({"image": list(x)}), pd.Series(y)
    for start in range(0, len(y), SIZE):
        model.learn_many(table[start : start + SIZE], labels[start : start + SIZE])
    return model.predict_many(table), model.predict_proba_many(table).sort_index(axis=1)


def by_capymoa(x, y, _):
    from capymoa.evaluation import prequential_evaluation
    from capymoa.stream import NumpyStream

    from s6mod.interfaces.capymoa import CapyMOALearner

    stream = NumpyStream(x.reshape(len(x), -1), y)
    model = CapyMOALearner(stream.get_schema(), SEED, METHOD, BRANCH, SHAPE, OPTIONS)
    prequential_evaluation(stream, model, batch_size=SIZE)
    rows = torch.from_numpy(x.reshape(len(x), -1))
    return model.batch_predict(rows), model.batch_predict_proba(rows)


def by_avalanche(x, y, _):
    from avalanche.benchmarks import split_online_stream, tensors_benchmark

    from s6mod.interfaces.avalanche import LearnerAgent

    tensors = [(torch.from_numpy(x), torch.from_numpy(y))]
    benchmark = tensors_benchmark(tensors, tensors, task_labels=[0])
    agent = LearnerAgent(tiny())
    for experience in split_online_stream(benchmark.train_stream, experience_size=SIZE, shuffle=False):
        agent.train(experience)
    (accuracy,) = agent.eval(benchmark.test_stream)
    labels = agent.learner.predict(x)
    assert accuracy == pytest.approx(100 * (labels == y).mean())
    return labels, in_order(agent.learner, agent.learner.predict_proba(x))


def by_hub(x, y, folder):
    from s6mod.interfaces.hub import HubLearner

    held = HubLearner(tiny())
    for start in range(0, len(y), SIZE):
        held.learner.learn(x[start : start + SIZE], y[start : start + SIZE])
        held.save_pretrained(folder)
        held = HubLearner.from_pretrained(folder)
    return held.learner.predict(x), in_order(held.learner, held.learner.predict_proba(x))


INTERFACES = {
    "sklearn": by_sklearn,
    "river": by_river,
    "huggingface_hub": by_hub,
    "capymoa": by_capymoa,
    "avalanche": by_avalanche,
}


@pytest.mark.parametrize("library", INTERFACES)
def test_a_learner_predicts_the_same_to_the_bit_through_every_interface(library, digits, tmp_path):
    if library == "capymoa" and shutil.which("java") is None:
        pytest.skip("CapyMOA needs a JVM")
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"needs {library}; test_interfaces_elsewhere.py has the libraries that do not go beside ours")
    few = digits.train_labels < 4
    x, y = digits.train_images[few][:80].numpy().astype(np.float32) / 255, digits.train_labels[few][:80].numpy()
    expected = plain(x, y)
    assert len(set(expected[0].tolist())) > 1
    for found, wanted in zip(INTERFACES[library](x, y, tmp_path), expected, strict=True):
        assert np.array_equal(np.asarray(found), wanted)

"""Copies of what predicts, which threads ask while the learner goes on."""

import threading
import time

import pytest
import torch
from states import assert_same_tree

import learners
from s6mod import Learner
from s6mod.errors import InputError
from s6mod.networks import ResNet18

S6MOD = {"name": "s6mod"}
X, Y = learners.batch(99, (0, 1), size=6)
CHOICES = [
    {},
    {"predict_by": "ncm"},
    {"predict_by": "ensemble", "branch": S6MOD, "statistics": "memory"},
    {"predict_by": "branch", "branch": S6MOD, "average": 0.9},
    {"teacher": "mkd"},
    {"name": "gdumb"},
    {"name": "pcr"},
    {"name": "er-ccldc"},
]


def learned(stop, name="er", **options):
    return learners.run(learners.small(name, **options), 0, stop)


@pytest.mark.parametrize("options", CHOICES, ids=str)
def test_what_is_published_answers_as_the_learner_did_to_the_bit_whatever_is_learned_later(options):
    learner = learned(2, **options)
    expected, labels, percent = learner.predict_proba(X), learner.predict(X), learner.evaluate(X, Y)
    tables = learner.scores(X)
    published = learner.publish()
    learners.run(learner, 2, 4)
    assert torch.equal(published.predict_proba(X), expected)
    assert torch.equal(published.predict(X), labels)
    assert published.predict(X[0]) == labels[0]
    assert published.evaluate(X, Y) == percent
    for name, table in published.scores(X).items():
        assert torch.equal(table, tables[name])
    assert published.primary in published.scores(X)
    assert (published.steps, learner.published) == (2, published)
    assert not torch.equal(learner.predict_proba(X), expected)


def test_tables_that_need_the_memory_are_left_out_unless_the_one_that_predicts_does():
    assert list(learned(2).publish().scores(X)) == ["head"]
    assert list(learned(2, predict_by="ncm").publish().scores(X)) == ["head", "ncm"]


@pytest.mark.parametrize(("name", "branch"), [("er", S6MOD), ("er-ccldc", None)])
def test_publishing_leaves_no_trace(name, branch):
    quiet = learned(4, name, branch=branch)
    loud = learned(4, name, branch=branch, publish_every=1, statistics="memory", predict_by="ncm")
    assert_same_tree(quiet.state_dict(), loud.state_dict())


def test_a_learner_answers_from_the_latest_copy_which_comes_with_the_first_batch_and_every_so_many():
    learner, plain = (learners.small("er", publish_every=n) for n in (3, None))
    answers, steps = [], []
    for position in range(6):
        for one in (learner, plain):
            one.learn(*learners.batch(position, (0, 1)))
        answers.append(plain.predict_proba(X))
        steps.append(learner.published.steps)
        assert torch.equal(learner.predict_proba(X), answers[steps[-1] - 1])
    assert steps == [1, 1, 3, 3, 3, 6]
    assert plain.published is None


def test_copies_come_by_the_clock_too(monkeypatch):
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    learner, steps = learners.small("er", publish_every=5, publish_seconds=2.0), []
    for position in range(5):
        now += 0.9
        learner.learn(*learners.batch(position, (0, 1)))
        steps.append(learner.published.steps)
    assert steps == [1, 1, 1, 4, 5]


def test_before_the_first_batch_there_is_nothing_to_publish_or_to_ask():
    learner = learners.small("er", publish_every=1)
    for ask in (learner.publish, lambda: learner.predict(X)):
        with pytest.raises(InputError, match="learn first"):
            ask()
    assert learner.published is None


def test_a_copy_refuses_images_of_another_shape():
    with pytest.raises(InputError, match="resize"):
        learned(1).publish().predict(torch.zeros(2, 3, 9, 9, dtype=torch.uint8))


def test_a_copy_knows_the_classes_of_its_moment():
    learner = learners.small("er", num_classes=None, publish_every=20)
    for position in range(18):  # more than the first outputs
        learner.learn(learners.batch(position, (0,))[0], [f"class {position}", "other"])
    assert learner.predict_proba(X).shape == (6, 2)
    assert set(learner.predict(X)) <= {"class 0", "other"}
    assert learner.published.classes_ == ["class 0", "other"]  # its columns have these names
    assert learner.publish().predict_proba(X).shape == (6, 19)
    assert learner.published.classes_ == learner.classes_


def test_a_loaded_learner_publishes_itself(tmp_path):
    learner = learned(2, publish_every=2)
    learner.save(tmp_path)
    again = Learner.load(tmp_path)
    assert again.published.steps == 2
    assert torch.equal(again.predict_proba(X), learner.predict_proba(X))


def test_the_bytes_of_the_latest_copy_count():
    learner = learned(2, branch=S6MOD)
    before = learner.nbytes
    peer = learner.peers[0]
    copied = sum(t.numel() * t.element_size() for t in (*peer.parameters(), *peer.buffers()))
    assert learner.publish().nbytes == learner.nbytes - before == copied
    means = 6 * peer.network.num_features * 4 + 6  # and which classes have one
    assert learned(2, branch=S6MOD, predict_by="ncm").publish().nbytes == copied + means


def test_whoever_asks_waits_for_no_step(monkeypatch):
    learner = learned(2, publish_every=1)
    inside, go_on, forward = threading.Event(), threading.Event(), ResNet18.forward
    waiting = learner.peers[0].network

    def held(network, *args, **kwargs):
        if network is waiting:
            inside.set()
            go_on.wait(60)
        return forward(network, *args, **kwargs)

    monkeypatch.setattr(ResNet18, "forward", held)
    step = threading.Thread(target=learner.learn, args=learners.batch(2, (0, 1)))
    step.start()
    try:
        assert inside.wait(60)
        assert learner.predict(X).shape == (6,)
        assert 0 <= learner.published.evaluate(X, Y) <= 100
        assert step.is_alive()
    finally:
        go_on.set()
        step.join()


@pytest.mark.parametrize("engine", [{}, {"precision": "bfloat16"}], ids=str)
def test_threads_that_ask_without_a_pause_leave_no_trace(engine):
    branch = S6MOD | {"view": "fresh"}
    quiet = learned(6, branch=branch, engine=engine)
    learner, done, failed = learned(1, branch=branch, engine=engine, publish_every=2), threading.Event(), []

    def ask():
        try:
            while not done.is_set():
                learner.predict(X)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        learners.run(learner, 1, 6)
    finally:  # or they would ask for ever
        done.set()
        for thread in threads:
            thread.join()
    assert not failed
    assert_same_tree(quiet.state_dict(), learner.state_dict())


def test_asking_does_not_empty_the_cache_of_autocast_which_is_the_whole_process_s(monkeypatch):
    published, emptied = learned(1, engine={"precision": "bfloat16"}).publish(), []
    monkeypatch.setattr(torch, "clear_autocast_cache", lambda: emptied.append(1))
    published.predict(X)
    assert not emptied


@pytest.mark.gpu
@pytest.mark.parametrize("capture", ["auto", "off"])
def test_on_a_gpu_threads_ask_while_steps_are_captured_and_leave_no_trace(capture):
    engine = {"device": "cuda", "capture": capture, "deterministic": True}

    def made(**options):
        method = {"network": {"width": 8}, "memory_batch": 24}
        return learners.small("er", S6MOD | {"view": "fresh"}, method, memory_size=60, engine=engine, **options)

    def batches(start, stop):
        return (learners.batch(position, (0, 1, 2), size=10, side=16) for position in range(start, stop))

    quiet, learner = made(), made(publish_every=3)
    for x, y in batches(0, 40):
        quiet.learn(x, y)
    for x, y in batches(0, 1):
        learner.learn(x, y)
    images, _ = learners.batch(99, (0,), size=20, side=16)
    done, answers, failed = threading.Event(), [], []

    def ask():
        try:
            while not done.is_set():
                answers[:] = [learner.published.predict_proba(images)]
        except BaseException as error:
            failed.append(error)

    reader = threading.Thread(target=ask)
    reader.start()
    try:
        for x, y in batches(1, 40):
            learner.learn(x, y)
    finally:  # or it would ask for ever
        done.set()
        reader.join()
    assert not failed
    assert answers
    assert capture == "off" or len(learner.step.graphs) >= 1
    assert_same_tree(quiet.state_dict(), learner.state_dict())
    torch.testing.assert_close(learner.publish().predict_proba(images), quiet.predict_proba(images))

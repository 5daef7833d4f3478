"""A learner that is told no number of classes."""

import enum
from dataclasses import replace

import numpy as np
import pytest
import torch
from states import assert_same_tree

import learners
from s6mod import Learner
from s6mod.errors import ConfigError, InputError, ResourceError
from s6mod.learner import learner as learner_module
from s6mod.learner.classes import FIRST_CAPACITY

S6MOD = {"name": "s6mod"}


def growing(branch=None, **options):
    return learners.small("er", branch, num_classes=None, **options)


def run(learner, start, stop):
    """Two new classes a batch, one with a string for a name and one with a number; a task has two batches."""
    for position in range(start, stop):
        learner.learn(learners.batch(position, (0,))[0], [f"class {position}", position])
        if position % 2:
            learner.end_task()
    return learner


def test_classes_are_listed_in_order_of_arrival_and_predictions_are_their_names():
    learner = run(growing(), 0, 3)
    x, _ = learners.batch(0, (0,), size=5)
    assert learner.classes_ == ["class 0", 0, "class 1", 1, "class 2", 2]
    assert set(learner.predict(x)) <= set(learner.classes_)
    assert learner.predict_proba(x).shape == learner.scores(x)["head"].shape == (5, 6)
    assert learner.predict_proba(x).sum(1) == pytest.approx(np.ones(5))


@pytest.mark.parametrize(
    ("y", "kind"),
    [
        (["cat", "dog"], np.ndarray),
        (np.array(["cat", "dog"]), np.ndarray),
        (np.array(["cat", "dog"], object), np.ndarray),
        ([-7, 10**12], torch.Tensor),
        (np.array([3, 200], np.uint8), torch.Tensor),
        (torch.tensor([5, -5]), torch.Tensor),
    ],
)
def test_labels_are_any_integers_or_strings(y, kind):
    learner = growing()
    x, _ = learners.batch(0, (0,))
    learner.learn(x, y)
    assert learner.classes_ == [value.item() if hasattr(value, "item") else value for value in y]
    assert isinstance(learner.predict(x), kind)
    assert isinstance(learner.predict(x.numpy()), np.ndarray)
    assert learner.predict(x[0]) in learner.classes_
    assert learner.evaluate(x, y) == 100 * (np.asarray(learner.predict(x)) == np.asarray(y)).mean()


@pytest.mark.parametrize("y", ["cat", torch.tensor(3), np.array(3), np.str_("cat"), np.int64(3)], ids=repr)
def test_a_single_image_has_a_single_label(y):
    learner = growing()
    learner.learn(learners.batch(0, (0,))[0][0], y)
    assert learner.classes_ == [y if isinstance(y, str) else 3]


def test_names_are_plain_whatever_class_they_are_of():
    Colour, Number = enum.StrEnum("Colour", "RED"), enum.IntEnum("Number", "ONE")
    learner = growing()
    learner.learn(learners.batch(0, (0,))[0], [Colour.RED, Number.ONE])
    assert list(map(type, learner.classes_)) == [str, int]


def test_a_label_that_a_number_of_classes_cannot_have_is_told_with_the_way_out():
    learner = learners.small("er")
    for y in ([0, 6], ["cup", "pen"]):
        with pytest.raises(InputError, match=r"; number the classes .* or make the learner without num_classes$"):
            learner.learn(learners.batch(0, (0,))[0], y)
    with pytest.raises(InputError, match=r"expected labels in 0\.\.5, got the name 'cup'; number"):
        learner.learn(learners.batch(0, (0,))[0], ["cup", "pen"])


def test_a_class_that_never_came_is_never_right():
    learner = run(growing(), 0, 2)
    assert learner.evaluate(learners.batch(0, (0,))[0], ["unheard", "of"]) == 0


@pytest.mark.parametrize("branch", [None, S6MOD])
def test_it_saves_and_resumes_to_the_bit_before_at_and_after_growth(tmp_path, branch):
    stop = FIRST_CAPACITY // 2 + 3  # batches; the last three have grown
    straight = run(growing(branch, average=0.9), 0, stop)
    assert straight.parts.capacity == 2 * FIRST_CAPACITY
    for saved in (1, stop - 3, stop - 2):
        run(growing(branch, average=0.9), 0, saved).save(tmp_path / str(saved))
        resumed = run(Learner.load(tmp_path / str(saved)), saved, stop)
        assert resumed.classes_ == straight.classes_
        assert_same_tree(straight.state_dict(), resumed.state_dict())


def test_the_vectors_of_old_classes_in_the_fixed_head_never_move():
    learner = run(growing(S6MOD), 0, 2)
    before = learner.peers[0].branch.etf.weight.clone()
    frame = run(learner, 2, 20).peers[0].branch.etf.weight  # 40 classes in 8 dimensions
    assert frame.shape == (8, 64)
    assert torch.equal(frame[:, : before.shape[1]], before)
    assert frame.norm(dim=0) == pytest.approx(torch.ones(64).numpy())


def test_a_class_that_another_thread_learned_while_a_prediction_waited_has_its_name(monkeypatch):
    learner, (x, _) = run(growing(), 0, 1), learners.batch(0, (0,))

    def waited(images):
        monkeypatch.undo()
        learner.learn(x, ["new", "newer"])
        return torch.eye(4)[[3, 2]]

    monkeypatch.setattr(learner, "_chosen", waited)
    assert learner.predict(x).tolist() == ["newer", "new"]


def test_classes_may_be_announced_and_others_come_all_the_same():
    learner = growing(classes=np.array(["b", "a"]))
    x, _ = learners.batch(0, (0,))
    learner.learn(x, ["a", "c"])
    assert learner.classes_ == ["b", "a", "c"]
    assert "b" not in learner.predict(x)  # it has not been seen
    assert (learner.predict_proba(x)[:, 0] == 0).all()


def test_with_num_classes_predictions_are_among_the_classes_seen_unless_told_otherwise():
    x, y = learners.batch(0, (3, 1), size=6)
    for among, seen in (("seen", {1, 3}), ("all", set(range(6)))):
        learner = learners.small("er", predict_among=among)
        learner.learn(x, y)
        finite = learner.scores(x)["head"].isfinite().any(0).nonzero().flatten().tolist()
        assert set(finite) == seen
    assert learner.classes_ == [3, 1]


BAD = {
    "a float": ([1.5, 2.0], "integers or strings, got 1.5 at position 0"),
    "an integer beyond 64 bits": ([1, 2**63], "labels of 64 bits, got 9223372036854775808 at position 1"),
    "half a letter": (["\ud800", "cat"], r"labels of Unicode, got '.ud800' at position 0"),
    "a bool": ([True, False], "integers or strings, got True"),
    "none": (["cat", None], "integers or strings, got None at position 1"),
    "too few": (["cat"], "expected 2 labels"),
    "no order": ({"cat", "dog"}, "labels as an array or list, got set"),
    "no values": (torch.empty(2, dtype=torch.int64, device="meta"), "labels as an array or list, got Tensor"),
    "a text in C": (["cat\0", "dog"], r"do not end in NUL, which NumPy drops, got 'cat.x00' at position 0"),
    "a table": (np.zeros((2, 2), int), r"expected labels of shape \(N,\), got \(2, 2\)"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_label_is_one_sentence_and_leaves_no_trace(name):
    y, told = BAD[name]
    learner, before = run(growing(), 0, 2), run(growing(), 0, 2).state_dict()
    with pytest.raises(InputError, match=rf"^expected [^\n]*{told}[^\n]*; [^\n]+$|^{told}[^\n]*; [^\n]+$"):
        learner.learn(learners.batch(0, (0,))[0], y)
    assert_same_tree(learner.state_dict(), before)


@pytest.mark.parametrize("y", [b"cat", np.bytes_(b"cat"), np.True_, True, 1.5, np.float32(1.5)], ids=repr)
def test_a_single_bad_label_is_told_as_one_in_a_list(y):
    for x in (torch.zeros(8, 8), torch.zeros(3, 8, 8)):
        with pytest.raises(InputError, match=r"^expected labels that are integers or strings, got .+ at position 0; "):
            growing().learn(x, y)


def test_labels_that_can_be_read_once_are_read_once():
    learner, (x, y) = growing(), learners.batch(0, (0, 1))
    learner.learn(x, map(str, y.tolist()))
    expected = learner.evaluate(x, list(map(str, y.tolist())))
    again = growing()
    again.learn(x, list(map(str, y.tolist())))
    assert again.evaluate(x, map(str, y.tolist())) == expected  # its first look at nearest means reads them too


def test_a_name_twice_or_a_number_beside_names_is_refused():
    with pytest.raises(InputError, match=r"^expected each class once, got 'a' 2 times; leave it out$"):
        growing(classes=["a", "b", "a"])
    with pytest.raises(ConfigError, match=r"^expected num_classes or classes, got both; leave num_classes out$"):
        learners.small("er", classes=["a"])


@pytest.mark.parametrize(
    ("known", "y", "told"),
    [
        (["0", "1"], ["1", 0], "the class '0' as a string, got 0, an integer, at position 1"),
        ([-7, 1], ["-7", 1], "the class -7 as an integer, got '-7', a string, at position 0"),
        (["a", "b"], [5, "5"], "the class 5 as an integer, got '5', a string, at position 1"),
    ],
)
def test_a_label_that_differs_from_a_class_by_its_type_alone_is_refused_at_once(known, y, told):
    x, _ = learners.batch(0, (0,))
    learner = growing()
    learner.learn(x, known)
    before = learner.state_dict()
    for asked in (learner.learn, learner.evaluate, learner.publish().evaluate):
        with pytest.raises(InputError, match=f"^expected {told}; keep to one type for its labels$"):
            asked(x, y)
    assert learner.classes_ == known
    assert_same_tree(learner.state_dict(), before)


@pytest.mark.parametrize("make", [growing, lambda **options: Learner.preset("everyday", **options)])
def test_classes_of_two_types_that_read_the_same_cannot_be_announced(make):
    with pytest.raises(InputError, match=r"^expected the class '0' as a string, got 0, an integer, at position 2"):
        make(classes=["0", "1", 0])


def test_labels_of_both_types_that_do_not_read_the_same_are_classes_of_their_own():
    x, _ = learners.batch(0, (0,), size=8)
    labels = [1, "01", "+1", " 1", "1.0", "\u0661", "1_0", "-0"]  # the sixth is a one in Arabic
    learner = growing(classes=[0])
    learner.learn(x, labels)
    assert learner.classes_ == [0, *labels]


def test_a_saved_learner_that_has_both_types_still_opens_and_goes_on(tmp_path):
    x, _ = learners.batch(0, (0,))
    learner = growing()
    learner.classes = replace(learner.classes, strict=False)  # as an older version was
    learner.learn(x, ["0", 0])
    learner.save(tmp_path)
    loaded = Learner.load(tmp_path)
    loaded.learn(x, [0, "0"])
    assert loaded.classes_ == ["0", 0]
    with pytest.raises(InputError, match=r"^expected the class 1 as an integer, got '1'"):
        loaded.learn(x, [1, "1"])


def test_a_state_of_classes_without_a_name_is_refused():
    state = run(growing(), 0, 2).state_dict()
    state["host"]["names"].pop()
    with pytest.raises(ValueError, match="classes that are not there"):
        growing().load_state_dict(state)


def test_the_shape_of_grey_images_is_refused_before_anything_is_built():
    learner = growing()
    with pytest.raises(InputError, match=r"in RGB, \(3, H, W\), got \(1, 8, 8\); grey ones are repeated"):
        learner.build((1, 8, 8))
    assert learner.parts is None


def test_growth_beyond_memory_is_one_sentence_and_the_learner_goes_on_as_it_was(monkeypatch):
    learner, before = run(growing(), 0, 8), run(growing(), 0, 8).state_dict()
    x, _ = learners.batch(0, (0,))
    with monkeypatch.context() as patch:

        def no_memory(*_):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB")

        patch.setattr(learner_module, "grown", no_memory)
        with pytest.raises(ResourceError, match=r"^expected enough memory for 32 classes, got: [^\n]+; lower [^\n]+$"):
            learner.learn(x, ["one", "more"])
    assert_same_tree(learner.state_dict(), before)
    learner.learn(x, ["one", "more"])
    assert learner.classes_[-2:] == ["one", "more"]


def announced(name="er", **options):
    """One that has learned a batch and has a single output left."""
    learner = learners.small(name, num_classes=None, classes=list(range(FIRST_CAPACITY - 1)), **options)
    learner.learn(learners.batch(0, (0,))[0], [0, 1])
    return learner


@pytest.mark.parametrize("name", ["er", "der"])
def test_a_step_that_fails_takes_its_growth_back(name, monkeypatch, tmp_path):
    learner, before = announced(name), announced(name).state_dict()
    x, _ = learners.batch(1, (0,))
    with monkeypatch.context() as patch:
        patch.setattr(learner, "step", lambda inputs: pytest.fail("no room"))
        with pytest.raises(pytest.fail.Exception):
            learner.learn(x, ["one", "more"])
    after = learner.state_dict()
    after["generators"]["host"] = before["generators"]["host"]  # draws go on
    assert_same_tree(after, before)
    learner.save(tmp_path)
    for each in (learner, Learner.load(tmp_path)):
        each.learn(x, ["one", "more"])
        assert each.parts.capacity == 2 * FIRST_CAPACITY


def test_an_interrupt_after_the_batch_is_stored_leaves_its_labels_their_names(monkeypatch, tmp_path):
    learner = announced()
    x, _ = learners.batch(1, (0,))
    with monkeypatch.context() as patch:
        store = type(learner.memory).store
        patch.setattr(type(learner.memory), "store", lambda *given: (store(*given), 1 / 0))
        with pytest.raises(ZeroDivisionError):
            learner.learn(x, ["one", "more"])
    learner.save(tmp_path)
    again = Learner.load(tmp_path)
    again.learn(x, ["another", "one"])
    stored = [again.classes_[label] for label in again.memory.labels[: len(again.memory)]]
    assert stored == [0, 1, "one", "more", "another", "one"]

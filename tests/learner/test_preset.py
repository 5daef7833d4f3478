"""Learners by a preset: a word for everyday use, or a cell of the published protocol."""

import re

import pytest

from s6mod import Learner
from s6mod.data.cifar import CIFAR10, CIFAR100
from s6mod.data.digits import load_digits
from s6mod.errors import ConfigError
from s6mod.learner import LearnerConfig
from s6mod.learner.config import LearnerOptions
from s6mod.presets import CLASSES, datasets, words
from s6mod.runs.cells import parse
from s6mod.runs.compose import compose
from s6mod.runs.config import RunConfig


@pytest.mark.parametrize(
    "cell",
    ["er+s6mod/cifar100/2000", "der++/cifar10/500", "mose/tiny-imagenet/5000", "scr/digits", "best/cifar10/500",
     "swift/cifar100/2000", "everyday/digits"],
)  # fmt: skip
def test_a_cell_gives_the_learner_that_its_run_has(cell):
    run = RunConfig.parse(parse(cell).values()).plain()
    learner = Learner.preset(cell).config.plain()
    assert learner == {name: run[name] for name in learner} | {"num_classes": CLASSES[cell.split("/")[1]]}


def test_every_data_set_with_a_preset_has_its_number_of_classes():
    assert CLASSES.keys() == set(datasets())
    assert (CLASSES["cifar10"], CLASSES["cifar100"]) == (CIFAR10.num_classes, CIFAR100.num_classes)
    assert CLASSES["digits"] == load_digits().num_classes


def test_changes_are_laid_on_top_option_by_option():
    base = Learner.preset("er+s6mod/cifar100/2000").config
    changed = Learner.preset(
        "er+s6mod/cifar100/2000", method={"network": {"width": 8}}, branch={"alpha": 3.0}, seed=5, memory_size=10
    ).config
    assert changed.method.network.width == 8
    assert (changed.branch.alpha, changed.branch.view) == (3.0, base.branch.view)
    assert (changed.seed, changed.memory_size, changed.num_classes) == (5, 10, 100)
    assert Learner.preset("er+s6mod/cifar100/2000", branch=None).config.branch is None
    assert Learner.preset("er/cifar100/2000", method="scr").config.method.name == "scr"


def test_options_of_a_word_are_changed_one_by_one():
    augment = Learner.preset("everyday", num_classes=3, method={"augment": {"scale": [0.5, 1.0]}}).config.method.augment
    usual = Learner.preset("everyday", num_classes=3).config.method.augment
    assert augment == usual.model_copy(update={"scale": (0.5, 1.0)})


@pytest.mark.parametrize("word", words())
def test_a_word_means_the_same_as_a_preset_in_a_cell_and_as_a_method(word):
    alone = Learner.preset(word, num_classes=100, memory_size=2000).config
    cell = parse(f"{word}/cifar100/2000")
    assert (cell.method, cell.teacher) == (alone.method.name, getattr(alone.teacher, "name", "none"))
    named = compose({"method": word, "data": "cifar100"})
    assert RunConfig.parse(cell.values()).hash == named.hash
    learner = named.plain()
    assert alone.plain() == {name: learner[name] for name in alone.plain()} | {"num_classes": 100}


def test_a_word_may_stand_for_another_learner_on_a_data_set():
    learners = {name: parse(f"best/{name}").learner for name in ("cifar10", "cifar100", "fashion-mnist")}
    assert learners == {"cifar10": "ocm+mkd", "cifar100": "mose+mkd", "fashion-mnist": "mose+mkd"}
    for name, learner in (("cifar10", "ocm+mkd"), ("cifar100", "mose+mkd")):
        composed = compose({"method": "best", "data": name})
        assert f"{composed.method.name}+{composed.teacher.name}" == learner


def test_a_word_s_learner_can_be_changed():
    changed = compose({"method": "best", "teacher": "none", "data": "cifar100"}, assignments=["method.network.width=8"])
    assert (changed.method.name, changed.method.network.width, changed.teacher) == ("mose", 8, None)
    assert changed.predict_by == "heads"
    assert parse("best/cifar100/2000/average=0.9").values()["average"] == 0.9


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("everday", "did you mean 'everyday'"),
        ("er/cifar1000/5", "did you mean 'cifar100'"),
        ("er/cifar100/many", "give the memory as a number"),
        ("er/cifar100/2000/alpha=3", "changes as keywords"),
        ("err/cifar100/2000", "expected a known method, got 'err'"),
        ("er+s7mod/cifar100/2000", "expected a known branch, got 's7mod'"),
    ],
)
def test_a_preset_that_is_not_known_is_one_sentence(name, message):
    with pytest.raises(ConfigError, match=message):
        Learner.preset(name)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("er+s6mod", "a method alone, got 'er+s6mod'; write Learner(method='er', branch='s6mod')"),
        ("der+++mkd", "a method alone, got 'der+++mkd'; write Learner(method='der++', teacher='mkd')"),
        ("best", "a method, got the preset 'best'; write Learner.preset('best')"),
    ],
)
def test_whoever_names_a_whole_learner_as_its_method_is_told_how_to_make_it(name, told):
    with pytest.raises(ConfigError, match=f"^expected {re.escape(told)}$"):
        Learner(name, num_classes=10)


def test_a_learner_that_is_told_no_method_is_the_everyday_one():
    assert Learner(num_classes=4, seed=2).config == Learner.preset("everyday", num_classes=4, seed=2).config
    assert Learner(num_classes=4, branch="smoothing").config.branch.name == "smoothing"
    assert Learner(num_classes=4, statistics="running", average=None).config.statistics == "running"


def test_options_of_a_method_without_its_name_are_those_of_the_everyday_one():
    told = Learner(method={"augment": "none"}, num_classes=4).config
    assert told == Learner.preset("everyday", num_classes=4, method={"augment": "none"}).config
    assert (told.method.augment, told.predict_by) == (None, "ncm")


def test_a_learner_that_is_told_a_method_starts_from_the_defaults_of_the_fields():
    told = Learner("er", num_classes=10, engine=None).config
    assert told == LearnerConfig.parse({"method": {"name": "er"}, "num_classes": 10, "predict_among": "seen"})
    assert told.plain()["method"]["augment"]["scale"] == [0.2, 1.0]


def test_the_options_of_a_call_are_the_fields_of_the_configuration():
    own = {"method", "branch", "network", "optimizer"}
    assert {*LearnerOptions.__annotations__, *own} == set(LearnerConfig.model_fields)
    with pytest.raises(ConfigError, match="did you mean 'memory_size'"):
        Learner("er", num_classes=10, memory_sise=3)

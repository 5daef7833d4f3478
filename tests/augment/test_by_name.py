"""Augmentation by a word: what each stands for, what is stored, and that none costs nothing."""

import pytest
import torch

from learners import METHODS, batch, run, small
from s6mod.augment import KorniaAugment, KorniaAugmentConfig, Untouched
from s6mod.augment.kornia_like import plain_view
from s6mod.errors import ConfigError
from s6mod.methods import methods
from s6mod.runs.cells import parse
from s6mod.runs.completion import complete
from s6mod.runs.config import RunConfig

AUGMENTED = [name for name in METHODS if "augment" in methods[name].config_class.model_fields]


def options(method, word):
    return methods.configure({"name": method, "augment": word}).augment


@pytest.mark.parametrize("method", AUGMENTED)
def test_a_word_stands_for_options_that_are_stored(method):
    published, light = (options(method, word) for word in ("published", "light"))
    assert published == methods.configure(method).augment
    assert (light.scale, light.flip_probability, light.grey_probability) == ((0.8, 1.0), 0.0, 0.0)
    assert type(light) is type(published)
    assert options(method, "none") is None
    plain = methods.configure({"name": method, "augment": "light"}).plain()
    assert methods.configure(plain).augment == light
    assert plain["augment"]["scale"] == [0.8, 1.0]


def test_light_changes_no_colour_and_leaves_half_of_the_images_whole():
    light = KorniaAugmentConfig.parse(KorniaAugmentConfig.words["light"])
    assert (light.jitter_probability, light.crop_probability) == (0.0, 0.5)


def test_a_word_that_is_not_known_is_one_sentence():
    with pytest.raises(ConfigError, match=r"expected for 'augment' its options or a word.*did you mean 'light'"):
        options("er", "ligth")


@pytest.mark.parametrize("word", ["none", "light", "published"])
def test_a_cell_with_a_word_has_the_name_of_the_run_that_it_becomes(word):
    values = parse(f"er/digits/50/method.augment={word}").values()
    assert complete(values) == RunConfig.parse(values).plain()


@pytest.mark.parametrize("method", ["er", "scr", "ocm", "onpro", "mose"])  # each place that makes an augmentation
def test_a_method_learns_without_augmentation_and_draws_nothing_for_it(method, monkeypatch):
    def refuse(*_):
        raise AssertionError("an augmentation ran")

    monkeypatch.setattr("s6mod.augment.kornia_like.uniform_numbers", refuse)
    monkeypatch.setattr("s6mod.augment.transform_layers.uniform_numbers", refuse)
    learner = run(small(method, method={"augment": "none"}), 0, 3)
    assert learner.predict(batch(0, (0, 1))[0]).shape == (2,)


def test_er_without_augmentation_leaves_its_generator_alone():
    learner = small("er", method={"augment": "none"})
    learner.build((3, 8, 8))
    before = learner.generators["method"].get_state()
    run(learner, 0, 3)
    assert torch.equal(learner.generators["method"].get_state(), before)


def test_images_that_are_not_touched_are_floats_of_the_same_pixels():
    images = batch(0, (0, 1))[0]
    generator = torch.Generator()
    assert torch.equal(Untouched()(images, generator), images / 255)
    floats = images / 255
    assert Untouched()(floats, generator) is floats


def test_leaving_out_what_touches_no_image_gives_the_same_bits():
    config = KorniaAugmentConfig.parse(KorniaAugmentConfig.words["light"])
    images = batch(0, (0, 1), size=16)[0]
    params = KorniaAugment(config).draw(16, (8, 8), torch.Generator().manual_seed(1), torch.device("cpu"))
    assert torch.equal(KorniaAugment(config).apply(images, params), plain_view(images, params))

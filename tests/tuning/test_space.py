import shlex

import pytest

from s6mod.errors import ConfigError
from s6mod.tuning.space import Choice, Range, lay, parse_search, parse_space


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("log:1e-4:1e-2", Range(1e-4, 1e-2, log=True)),
        ("log:1:64", Range(1, 64, log=True)),
        ("0.1:0.9", Range(0.1, 0.9, log=False)),
        ("0:2.5", Range(0.0, 2.5, log=False)),
        ("1:8", Range(1, 8, log=False)),
        ("0.1|0.5|5", Choice((0.1, 0.5, 5))),
        ("fresh|shared", Choice(("fresh", "shared"))),
        ("true|false|null", Choice((True, False, None))),
        ([1, 2], Choice((1, 2))),
    ],
)
def test_a_space_reads_as_it_is_typed(text, expected):
    [found] = parse_space({"field": text}).values()
    assert found == expected
    assert [type(each) for each in found.samples] == [type(each) for each in expected.samples]


@pytest.mark.parametrize("text", ["", "5", "a:b", "1:2:3", "log:1e-4", "lin:1:2", "true:false", [1], [[1], [2]]])
def test_what_is_no_space_is_refused_with_an_example(text):
    with pytest.raises(ConfigError, match=r"for f, got .*; write for instance log:1e-4:1e-2"):
        parse_space({"f": text})


@pytest.mark.parametrize("text", ["2:1", "1:1", "log:0:1", "log:-1.0:1.0"])
def test_a_range_goes_from_low_to_high(text):
    with pytest.raises(ConfigError, match="from low to high for f"):
        parse_space({"f": text})


def test_nothing_to_search_and_the_seed_are_refused():
    with pytest.raises(ConfigError, match="got none; give for instance --search"):
        parse_space({})
    with pytest.raises(ConfigError, match="name the seeds with --seeds"):
        parse_space({"seed": "1:5"})


@pytest.mark.parametrize(
    "refused",
    [lambda: parse_space({}), lambda: parse_space({"f": "5"}), lambda: parse_search(["f"])],
    ids=["nothing", "no space", "no field"],
)
def test_examples_can_be_typed_into_a_shell(refused):
    with pytest.raises(ConfigError) as error:
        refused()
    example = str(error.value).partition("for instance ")[2]
    assert "|" not in list(shlex.shlex(example, punctuation_chars=True))


def test_a_search_has_a_field_and_a_space():
    assert parse_search(["branch.beta = 0.1|5", "a.b=x=1|x=2"]) == {"branch.beta": "0.1|5", "a.b": "x=1|x=2"}
    with pytest.raises(ConfigError, match="expected FIELD=SPACE, got 'branch"):
        parse_search(["branch.beta"])


def test_values_are_laid_over_a_configuration_by_dotted_field():
    base = {"branch": {"name": "s6mod", "alpha": 1.0}, "memory_size": 5}
    assert lay(base, {"branch.beta": 5, "memory_size": 7}) == {
        "branch": {"name": "s6mod", "alpha": 1.0, "beta": 5},
        "memory_size": 7,
    }

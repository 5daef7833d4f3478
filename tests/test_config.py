import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from s6mod.config import Config, assign, read_yaml
from s6mod.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("0200", 200), ("010", 10), ("08", 8), ("-007", -7), ("+3", 3), ("0", 0), ("20_000", 20_000),
        ("0x1F", 31), ("-0o17", -15), ("1:30", "1:30"), ("1_", "1_"), ("1e-3", 0.001), ("08.5", 8.5),
    ],
)  # fmt: skip
def test_whole_numbers_are_decimal_unless_they_say_otherwise(tmp_path, text, meant):
    value = assign({}, f"key={text}")["key"]
    assert (value, type(value)) == (meant, type(meant))
    (tmp_path / "file.yaml").write_text(f"key: {text}\n", encoding="utf-8")
    assert read_yaml(tmp_path / "file.yaml") == {"key": meant}


@pytest.mark.parametrize("text", ["&a [*a]", "&a {b: *a}", "!!int x", "!!bool x", "2026-13-45", "9" * 5000])
def test_what_no_value_can_be_made_of_is_one_sentence(tmp_path, text):
    with pytest.raises(ConfigError, match="expected a YAML value after key="):
        assign({}, f"key={text}")
    (tmp_path / "file.yaml").write_text(f"key: {text}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="expected YAML in"):
        read_yaml(tmp_path / "file.yaml")


def test_a_file_without_an_end_is_not_read_for_ever():
    with pytest.raises(ConfigError, match="expected at most 1,048,576 letters of YAML"):
        read_yaml(Path("/dev/zero"))


def test_a_value_may_be_named_and_used_twice():
    assert assign({}, "key=[&a {b: 1}, *a]")["key"] == [{"b": 1}, {"b": 1}]


def test_a_value_that_holds_itself_is_one_sentence():
    circle = []
    circle.append(circle)
    with pytest.raises(ConfigError, match="expected plain values"):
        Config.parse({"values": circle})


BILLION = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join(['*' + before] * 10)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
MERGED = "a: &a {k: v}\n" + "".join(
    f"n{number}: &n{number} {{<<: [{', '.join(['*' + (f'n{number - 1}' if number else 'a')] * 10)}]}}\n"
    for number in range(9)
)


@pytest.mark.parametrize("text", [BILLION, MERGED, "key: " + "[" * 100_000, "key: " + "{a: " * 150 + "}" * 150])
def test_a_short_file_that_stands_for_values_without_end_is_refused_at_once(tmp_path, text):
    (tmp_path / "file.yaml").write_text(text, encoding="utf-8")
    begin = time.perf_counter()
    with pytest.raises(ConfigError, match="nested or repeated beyond reason; mend the file"):
        read_yaml(tmp_path / "file.yaml")
    assert time.perf_counter() - begin < 5


@pytest.mark.parametrize("text", ["[" * 100_000, "[" * 3000 + "]" * 3000, "{a: " * 150 + "}" * 150, BILLION])
def test_a_value_nested_or_repeated_beyond_reason_is_one_short_sentence(text):
    with pytest.raises(ConfigError, match="expected a YAML value after key=") as caught:
        assign({}, f"key={text}")
    assert len(str(caught.value)) < 400


def test_a_key_of_a_thousand_parts_is_one_sentence():
    with pytest.raises(ConfigError, match="expected a dotted key of at most 100 parts, got 1000"):
        assign({}, ".".join("a" * 1000) + "=1")


def test_values_from_python_that_are_nested_beyond_reason_are_one_short_sentence():
    for depth in (150, 500, 100_000):
        values = []
        for _ in range(depth):
            values = [values]
        with pytest.raises(ConfigError) as caught:
            Config.parse({"values": values})
        assert len(str(caught.value)) < 600


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from("[]{}&*ab: ,<!|>-'\"\n10.#%@~\x00\ud800\x1b"), max_size=60) | st.text(max_size=30))
def test_whatever_is_typed_behind_a_key_is_a_value_or_one_sentence(text):
    said = []
    try:
        assign({}, f"key={text}")
    except ConfigError as error:
        said.append(str(error))
    assert all(sentence.startswith("expected") for sentence in said)

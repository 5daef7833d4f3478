import pytest

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


def test_a_value_may_be_named_and_used_twice():
    assert assign({}, "key=[&a {b: 1}, *a]")["key"] == [{"b": 1}, {"b": 1}]


def test_a_value_that_holds_itself_is_one_sentence():
    circle = []
    circle.append(circle)
    with pytest.raises(ConfigError, match="expected plain values"):
        Config.parse({"values": circle})

"""Files are UTF-8 and commands come to their ends whatever the locale is."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = [*(ROOT / "src").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")]


def is_left_to_the_locale(call):
    """Whether a call reads or writes text without naming its encoding; a mode is the first argument of Path.open."""
    name = getattr(call.func, "attr", getattr(call.func, "id", None))
    if any(keyword.arg == "encoding" for keyword in call.keywords):
        return False
    if name in ("read_text", "write_text"):
        return True
    mode = call.args[0] if call.args else ast.Constant("r")
    return name == "open" and isinstance(mode, ast.Constant) and isinstance(mode.value, str) and "b" not in mode.value


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("file.read_text()", True),
        ("(folder / 'x').write_text(text)", True),
        ("file.open('a')", True),
        ("file.open(newline='')", True),
        ("open('x')", True),
        ("file.read_text(encoding='utf-8')", False),
        ("file.open('rb')", False),
        ("tarfile.open(archive)", False),
    ],
)
def test_the_search_below_finds_what_it_is_to_find(text, left):
    assert is_left_to_the_locale(ast.parse(text, mode="eval").body) is left


def test_no_text_is_read_or_written_as_the_locale_has_it():
    found = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for file in SOURCES
        for node in ast.walk(ast.parse(file.read_bytes()))
        if isinstance(node, ast.Call) and is_left_to_the_locale(node)
    ]
    assert found == []


SCRIPT = """
import sys
from pathlib import Path
from s6mod.cli import main
from s6mod.config import read_yaml

print(ascii(read_yaml(Path("file.yaml"))))
for line in sys.stdin:
    sys.argv = ["s6mod", *line.split()]
    try:
        main()
    except SystemExit as end:
        assert not end.code, line
"""
COMMANDS = """\
runs records
table all --store records
report {folder}/records --out page.html
table --write page.md --store records
table --write page.md --store records --check
"""


def test_commands_come_to_their_ends_where_the_locale_knows_ascii_alone(tmp_path):
    folder = tmp_path / "für"  # its name is no text there, and stands on the page
    (folder / "records").mkdir(parents=True)
    for record in (ROOT / "results").glob("er+s6mod-cifar100-2000-seed*.json"):
        shutil.copy(record, folder / "records")
    (folder / "file.yaml").write_text("key: für", encoding="utf-8")
    ascii_alone = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input=COMMANDS.format(folder=folder).encode(),
        cwd=folder,
        env=os.environ | ascii_alone,
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.startswith(rb"{'key': 'f\xfcr'}")
    assert b", ? half of its" in done.stdout  # it shows what it can
    assert "für/records" in (folder / "page.html").read_text(encoding="utf-8")
    assert "±" in (folder / "page.md").read_text(encoding="utf-8")

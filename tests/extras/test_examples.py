"""The notebooks in examples/: each runs from its first cell to its last, and what its cells end with shows itself."""

import ast
import json
from pathlib import Path

import pytest

from s6mod.methods import methods

pytestmark = pytest.mark.extras
NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples").glob("*.ipynb"))


def value_of(code, place, names):
    """Run a cell; what a notebook would show below it."""
    tree = ast.parse(code)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, place, "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), place, "eval"), names)


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_runs_and_its_values_show_themselves(file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(methods, "_parts", dict(methods._parts))
    names = {"__name__": "__main__"}
    for cell in json.loads(file.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            value = value_of("".join(cell["source"]), f"{file.name} {cell['id']}", names)
            assert value is None or hasattr(value, "_repr_html_") or value._repr_png_().startswith(b"\x89PNG")

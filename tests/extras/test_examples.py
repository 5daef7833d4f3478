"""The notebooks in examples/: each runs from its first cell to its last."""

import json
from pathlib import Path

import pytest

from s6mod.methods import methods

pytestmark = pytest.mark.extras
NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples").glob("*.ipynb"))


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_runs(file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(methods, "_parts", dict(methods._parts))
    names = {"__name__": "__main__"}
    for cell in json.loads(file.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{file.name} {cell['id']}", "exec"), names)

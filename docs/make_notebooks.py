"""Make the notebooks in examples/ from the tutorials: python docs/make_notebooks.py [--check]

A tutorial's Python blocks become cells of code, and what stands between them cells of text. So page and notebook say
the same; a test compares them.
"""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
CODE = re.compile(r"^```python\n(.*?)^```$\n?", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?!https?://|#)([^)\s]+)\)")


def notebooks() -> dict[Path, str]:
    """Each notebook's file with its text."""
    return {EXAMPLES / f"{page.stem}.ipynb": notebook(page) for page in sorted((ROOT / "docs/tutorials").glob("*.md"))}


def notebook(page: Path) -> str:
    """The notebook of a page, without outputs."""
    parts = CODE.split(page.read_text(encoding="utf-8"))  # text, code, text, ...
    cells = []
    for number, part in enumerate(parts):
        if part.strip():
            cells.append(_cell(part.strip(), number % 2 == 1, f"{page.stem}-{number}", page))
    metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    metadata |= {"language_info": {"name": "python"}}
    whole = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def _cell(text: str, is_code: bool, name: str, page: Path) -> dict[str, Any]:
    if is_code:
        own: dict[str, Any] = {"cell_type": "code", "execution_count": None, "outputs": []}
    else:
        own = {"cell_type": "markdown"}
        text = LINK.sub(lambda found: f"]({_from_examples(found[1], page)})", text)
    return own | {"id": name, "metadata": {}, "source": text.splitlines(keepends=True)}


def _from_examples(target: str, page: Path) -> str:
    path, mark, anchor = target.partition("#")
    goal = page.parent / path
    if goal.parent == page.parent:  # another tutorial
        return f"{goal.stem}.ipynb"
    return os.path.relpath(goal, EXAMPLES) + mark + anchor


def main() -> None:
    """Write them, or refuse those that are not what their page says."""
    made = notebooks()
    stale = [file.name for file, text in made.items() if not file.exists() or file.read_text(encoding="utf-8") != text]
    stale += [file.name for file in EXAMPLES.glob("*.ipynb") if file not in made]
    if "--check" in sys.argv:
        sys.exit(f"{', '.join(stale)}: not as the tutorials say; run python docs/make_notebooks.py" if stale else None)
    EXAMPLES.mkdir(exist_ok=True)
    for file, text in made.items():
        file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

import json
import re

from rich.console import Console

from s6mod.config import merge
from s6mod.paper.estimate import WORTH
from s6mod.presets import preset
from s6mod.report import demo


def test_the_demo_ends_with_a_report_and_says_where_it_is(tmp_path, monkeypatch):
    small = {"method": {"network": {"width": 4}, "memory_batch": 8}, "stream": {"tasks": 2, "samples_per_task": 20}}
    monkeypatch.setattr(demo, "preset", lambda *names: merge(preset(*names), small))
    console = Console(record=True, width=200)
    demo.run_demo(tmp_path / "demo", 1, console)
    report = tmp_path / "demo" / "report.html"
    said = console.export_text()
    assert said.splitlines()[-1] == f"report, for a browser: {report}"
    assert "(statistics=memory), unlike the presets" in said
    assert " is ahead with " in said
    assert " ".join(said.split()).count(WORTH) == 1  # one seed
    text = report.read_text()
    assert re.search(r"Unlike the presets, all have .*statistics=&quot;memory&quot;", text)
    for file in (tmp_path / "demo").glob("*/result.json"):
        result = json.loads(file.read_text())
        assert f"{result['metrics']['head']['accuracy']:.2f}" in text
        assert result["cell"].partition("/")[0] in text

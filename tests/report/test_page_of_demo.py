import json

from rich.console import Console

from s6mod.config import merge
from s6mod.presets import preset
from s6mod.report import demo


def test_the_demo_ends_with_a_report_and_says_where_it_is(tmp_path, monkeypatch):
    small = {"method": {"network": {"width": 4}, "memory_batch": 8}, "stream": {"tasks": 2, "samples_per_task": 20}}
    monkeypatch.setattr(demo, "preset", lambda *names: merge(preset(*names), small))
    console = Console(record=True, width=200)
    demo.run_demo(tmp_path / "demo", 1, console)
    report = tmp_path / "demo" / "report.html"
    assert console.export_text().splitlines()[-1] == f"report, for a browser: {report}"
    text = report.read_text()
    for file in (tmp_path / "demo").glob("*/result.json"):
        result = json.loads(file.read_text())
        assert f"{result['metrics']['head']['accuracy']:.2f}" in text
        assert result["cell"].partition("/")[0] in text

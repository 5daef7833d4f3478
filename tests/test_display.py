import io

import pytest
from rich.console import Console

from s6mod.display import RunDisplay, result_table
from s6mod.runs.cells import parse
from s6mod.runs.config import RunConfig
from s6mod.runs.progress import Progress

PROGRESS = Progress(130, 5000, 9, 10, 182.0, {"ce": 1.5, "branch/diff": 0.25}, 72.0, False)


def shown(cell, width, progress):
    """What a terminal of so many columns shows of a run when it is over."""
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    with RunDisplay(console) as display:
        watch = display.watch(RunConfig.parse(parse(cell).values()))
        if progress is not None:
            watch(progress)
    with console.capture() as capture:
        console.print(display.bars)
    return capture.get().strip()


@pytest.mark.parametrize(
    ("cell", "width", "end"),
    [
        ("er/digits", 120, "72 % 182 samples/s ce 1.50 diff 0.25"),
        ("er/digits", 80, "72 % 182 samples/s"),
        ("er+confidence/digits", 80, "72 %"),
    ],
)
def test_a_narrow_terminal_shows_whole_words_or_none(cell, width, end):
    line = shown(cell, width, PROGRESS)
    assert line.endswith(end)
    assert "130/5000" in line
    assert "…" not in line


def test_a_run_that_never_began_leaves_no_bar_behind():
    assert shown("er/digits", 80, None) == ""


def test_forgetting_that_rounds_to_nothing_has_no_minus():
    metrics = {"accuracy": 90.0, "forgetting": -0.01, "learning_accuracy": 90.0}
    result = {"cell": "er/digits", "primary": "head", "metrics": {"head": metrics}, "ms_per_step": 4, "bytes_held": 0}
    console = Console(file=io.StringIO(), width=100)
    console.print(result_table([result]))
    assert " 90.0 0.0 " in " ".join(console.file.getvalue().split())


@pytest.mark.parametrize(
    ("statistics", "ncm", "told"), [("running", 80.0, True), ("running", 65.0, False), ("memory", 80.0, False)]
)
def test_a_head_that_lags_behind_its_features_is_explained(statistics, ncm, told):
    head, means = ({"accuracy": 50.0, "forgetting": 1.0, "learning_accuracy": score} for score in (60.0, ncm))
    result = {"cell": "er/digits/200", "primary": "head", "metrics": {"head": head, "ncm": means}, "ms_per_step": 3.0}
    result |= {"bytes_held": 10**6, "config": {"statistics": statistics}}
    console = Console(file=io.StringIO(), width=300)
    console.print(result_table([result]))
    assert ("than what predicts (er/digits/200)" in " ".join(console.file.getvalue().split())) == told


def test_what_to_know_of_a_table_is_read_in_the_width_of_the_terminal():
    metrics = {"head": {"accuracy": 90.0, "forgetting": 1.0, "learning_accuracy": 91.0}}
    result = {"cell": "er", "primary": "head", "metrics": metrics, "ms_per_step": 3.0, "bytes_held": 10**6}
    console = Console(file=io.StringIO(), width=80)
    console.print(result_table([result, result]))
    *_, first, second, _ = console.file.getvalue().split("\n")
    assert first == "Acc, AF (forgetting), N-Acc (just after learning) in percent, by the scores that"
    assert second.startswith("predict and, below, by others")


def test_a_single_run_says_in_one_line_what_it_is_worth():
    metrics = {"head": {"accuracy": 90.0, "forgetting": 1.0, "learning_accuracy": 91.0}}
    result = {"cell": "er/digits/200", "primary": "head", "metrics": metrics, "ms_per_step": 3.0, "bytes_held": 10**6}

    def shown(*results):
        console = Console(file=io.StringIO(), width=300)
        console.print(result_table(results))
        return console.file.getvalue()

    assert "A single run is worth little" in " ".join(shown(result).split())
    assert "single run" not in shown(result, result)

import io

import numpy as np
import pytest
from rich.console import Console

from s6mod.data import Dataset, load
from s6mod.errors import ConfigError
from s6mod.report.stream_table import show_stream, stream_config


def test_the_stream_shown_is_the_one_that_train_would_see():
    assert stream_config("cifar100", []).tasks == 10  # by its preset
    config = stream_config("digits", ["kind=blurry", "blur=0.3", "tasks=2"])
    assert (config.kind, config.blur, config.tasks, config.batch_size) == ("blurry", 0.3, 2, 10)
    assert stream_config("digits", ["tasks=[[0, 1], [2]]"]).tasks == ((0, 1), (2,))


@pytest.mark.parametrize(
    ("assignment", "hint"), [("kinds=blurry", "did you mean 'kind'"), ("blur=0.1", "blurry"), ("blurry", "key=value")]
)
def test_mistakes_are_one_sentence(assignment, hint):
    with pytest.raises(ConfigError, match=hint):
        stream_config("digits", [assignment])


def test_a_plan_is_shown_as_a_table_and_a_picture(tmp_path):
    out = io.StringIO()
    digits = load("digits")
    picture = tmp_path / "plan.png"
    config = stream_config("digits", ["kind=blurry", "blur=0.2"])
    plan = show_stream(digits, config, 3, picture, Console(file=out, width=100))
    lines = out.getvalue().splitlines()
    rows = [line.split() for line in lines if "%" in line]
    assert [int(row[0]) for row in rows] == [1, 2, 3, 4, 5]
    assert sum(int(row[1]) for row in rows) == len(plan)
    assert sum(int(row[2]) for row in rows) == len(digits.train_labels)
    assert all(78 <= int(row[3]) <= 85 for row in rows)
    assert rows[0][5:] == [f"{plan.task_classes[0][0]},", str(plan.task_classes[0][1])]
    assert plan.hash in out.getvalue()
    assert picture.exists()


def test_names_of_many_classes_leave_room_for_the_numbers():
    images, labels = np.zeros((400, 1, 8, 8), np.uint8), np.arange(400) % 200
    names = [f"a long name of class {number}" for number in range(200)]
    data = Dataset.from_arrays(images, labels, images, labels, class_names=names)
    out = io.StringIO()
    show_stream(data, stream_config("digits", ["tasks=20"]), 0, None, Console(file=out, width=80))
    rows = [line.split() for line in out.getvalue().splitlines() if "a long name" in line]
    assert [row[:5] for row in rows] == [[str(task), "2", "20", "100", "%"] for task in range(1, 21)]


def test_the_name_of_a_class_cannot_command_the_terminal():
    out, x = io.StringIO(), np.zeros((4, 3, 8, 8), np.uint8)
    dataset = Dataset.from_arrays(x, [0, 1, 0, 1], x, [0, 1, 0, 1], class_names=["\x1b[2Ja", "b\u202ec"])
    show_stream(dataset, stream_config("digits", ["tasks=2"]), 0, None, Console(file=out, width=100))
    assert all(line.isprintable() for line in out.getvalue().split("\n"))
    assert "\\x1b[2Ja" in out.getvalue()

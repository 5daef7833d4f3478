import pytest
import torch

from s6mod.errors import InputError
from s6mod.methods import Plan, Task


@pytest.mark.parametrize("rows", [torch.tensor([True, False]), torch.tensor([1, 2]).int(), torch.tensor([[1]])])
def test_the_rows_of_a_plan_are_numbers_in_a_line(rows):
    with pytest.raises(
        InputError, match=r"^expected the rows 'replay' of a plan as an int64 tensor .*, got torch\.\w+ of"
    ):
        Plan({"fine": torch.arange(3), "replay": rows})


def test_a_task_with_the_classes_of_a_batch_is_another_and_the_first_stays_as_it_was():
    task = Task(2, 5, [4, 0], [0])
    assert task.with_classes(torch.tensor([3, 4, 3, 1])) == Task(2, 5, [4, 0, 3, 1], [0, 4, 3, 1])
    assert task == Task(2, 5, [4, 0], [0])

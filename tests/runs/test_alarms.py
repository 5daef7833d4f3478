import warnings

import pytest
import torch

from records import records_of
from s6mod.branch import Branch, ConfidencePenalty
from s6mod.runs import alarms
from s6mod.runs.alarms import PATIENCE, TOLD, conditions, raise_alarms
from s6mod.runs.config import RunConfig
from s6mod.runs.execute import execute
from s6mod.runs.run import Run

COLD = {"cold": "it is cold"}


def told(records, every=100):
    """The sentences at each record, of the conditions that it met."""
    since = {}
    return [raise_alarms(met, since, (i + 1) * every, i * every) for i, met in enumerate(records)]


def test_what_holds_for_many_steps_is_told_once():
    said = told([COLD] * 8)
    assert said[:4] == [[]] * 4
    assert said[PATIENCE // 100 - 1] == ["it is cold since step 0"]
    assert said[5:] == [[]] * 3
    assert told([{}] + [COLD] * 5)[-1] == ["it is cold since step 100"]


def test_what_comes_and_goes_is_not():
    assert not any(told([COLD, COLD, {}] * 9))


def test_a_run_that_goes_on_tells_nothing_again():
    since = {}
    for i in range(5):
        raise_alarms(COLD, since, 100 * (i + 1), 100 * i)
    assert since == {"cold": TOLD}
    raise_alarms({}, since, 600, 500)
    assert since == {"cold": TOLD}


class Thermometer(Branch):
    def alarms(self, figures):
        return COLD if figures == {"degrees": -1} else {}


def test_each_networks_branch_sees_its_own_figures_and_is_told_by_its_networks_name():
    assert conditions([Thermometer()], {"degrees": -1}) == COLD
    both = {"net1/degrees": 20, "net2/degrees": -1}
    assert conditions([Thermometer(), Thermometer()], both) == {"net2/cold": "net2/it is cold"}
    assert conditions([None, Thermometer()], {"net2/degrees": -1}) == {"net2/cold": "net2/it is cold"}
    assert conditions([None], {}) == {}


@pytest.mark.parametrize("worry", [{}, COLD])
def test_a_run_tells_what_a_branch_of_any_kind_worries_about_whatever_its_figures_are_called(
    tmp_path, digits, monkeypatch, worry
):
    monkeypatch.setattr(alarms, "PATIENCE", 4)
    monkeypatch.setattr(ConfidencePenalty, "figures", lambda branch: {"my_pattern_load": torch.zeros(1)})
    monkeypatch.setattr(
        ConfidencePenalty, "alarms", lambda branch, figures: worry if figures == {"my_pattern_load": [0.0]} else {}
    )
    config = RunConfig.parse(
        {
            "method": {"name": "er", "network": {"width": 2}, "memory_batch": 4},
            "branch": {"name": "confidence"},
            "stream": {"tasks": 1, "samples_per_task": 60},
            "output": {"log_every": 2, "keep_checkpoint": False},
        }
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        execute([lambda: Run.begin(config, tmp_path / "r", digits)])
    said = [record["text"] for record in records_of(tmp_path / "r") if record["kind"] == "warning"]
    assert said == ["it is cold since step 0"] * len(worry)
    assert [str(each.message) for each in caught] == [f"er+confidence/digits/1000 seed 0: {text}" for text in said]

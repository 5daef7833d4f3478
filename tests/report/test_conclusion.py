import json

import pytest

from s6mod.methods import methods
from s6mod.paper.estimate import WORTH
from s6mod.report.conclusion import conclusion, lagging, names, nearest_means
from s6mod.report.groups import group_runs
from s6mod.report.page import page
from s6mod.report.source import read_runs

ER, OURS, ACE = (f"{learner}/digits/200" for learner in ("er", "er+s6mod", "er-ace"))


@pytest.fixture
def groups(tmp_path, write_run):
    """Groups of cells with the accuracies of their seeds; by nearest means they have so much more."""

    def make(accuracies, ncm=0.0, ncm_new=0.0):
        for cell, values in accuracies.items():
            for seed, accuracy in enumerate(values):
                file = write_run(tmp_path, cell, seed=seed, accuracy=accuracy) / "result.json"
                result = json.loads(file.read_text())
                metrics = result["metrics"]["head"]
                more = {"accuracy": ncm, "learning_accuracy": ncm_new}
                result["metrics"] = {"head": metrics, "ncm": {k: v + more.get(k, 0.0) for k, v in metrics.items()}}
                file.write_text(json.dumps(result))
        return group_runs(read_runs([tmp_path]))

    return make


def test_the_best_is_named_with_its_lead_and_what_that_is_worth(groups):
    told = " ".join(conclusion(groups({ER: (70.0, 72.0, 74.0), OURS: (80.0, 82.0, 85.0)})))
    assert told == (
        "er+s6mod is ahead with 82.33 %; then er with 72.00 % (3 seeds each). The lead over er, paired by seed, "
        "is +10.33 ± 1.43 points (3 seeds): more than chance gives. Seeds of one learner lie up to 5.0 points apart "
        "here."
    )


@pytest.mark.parametrize(
    ("ours", "told"),
    [
        ((71.0, 90.0, 70.0), "+5.00 ± 28.65 points (3 seeds): not beyond chance."),
        ((80.0, 82.0), "+10.00 ± 0.00 points (2 seeds): too few to tell."),
        ((80.0,), "+10.00 points (1 seed): too few to tell."),
    ],
)
def test_a_lead_is_called_one_only_if_chance_gives_less(groups, ours, told):
    assert told in " ".join(conclusion(groups({ER: (70.0, 72.0, 74.0), OURS: ours})))


def test_a_run_alone_says_in_one_line_what_it_is_worth(groups):
    assert conclusion(groups({ER: (70.0,)})) == ["er ends with 70.00 % (1 seed).", WORTH]


def test_what_the_learners_names_stand_for_is_told_once(groups, monkeypatch):
    found = groups({ER: (70.0,), ACE: (71.0,), OURS: (80.0,)})
    assert names(found) == (
        "er: Experience replay. er-ace: Experience replay with asymmetric cross-entropy. +s6mod: The S6MOD branch."
    )
    monkeypatch.setattr(methods["er"], "__doc__", None)
    monkeypatch.delitem(methods._parts, "er-ace")  # as of a run whose method is not here
    assert names(found) == "+s6mod: The S6MOD branch."


def test_nearest_means_that_beat_the_head_are_told(groups):
    assert nearest_means(groups({ER: (70.0, 72.0)}, ncm=20.0)) == (
        "Nearest class means of the memory's features (ncm) are better than what predicts: er 91.0 % by them, 71.0 % "
        "as it predicts. --set predict_by=ncm predicts by them."
    )


def test_nearest_means_that_are_no_better_are_not_told(groups):
    assert nearest_means(groups({ER: (70.0, 72.0)}, ncm=0.5)) == ""


def test_a_head_that_lags_behind_its_features_is_explained(groups, tmp_path):
    found = groups({ER: (40.0, 42.0)}, ncm_new=30.0)
    assert lagging(found).startswith("Just after learning a task: er 61 % (by nearest means 91 %).")
    assert "running averages" in page(read_runs([tmp_path]))


def test_a_head_that_keeps_up_or_predicts_by_the_memory_is_not(groups):
    assert lagging(groups({ER: (40.0, 42.0)}, ncm_new=5.0)) == ""
    assert "memory" not in lagging(groups({f"{OURS}/statistics=memory": (40.0,)}, ncm_new=30.0))


def test_any_two_methods_of_a_page_are_paired(groups, tmp_path):
    groups({ER: (70.0, 72.0), OURS: (80.0, 82.0), ACE: (75.0, 76.0), "er-ace/digits/100": (60.0,)})
    text = page(read_runs([tmp_path]))
    [table] = [part for part in text.split("<table>") if "Any two, Acc" in part.partition("</caption>")[0]]
    assert "M = 200</caption>" in table
    assert "<td>+4.50 ± 6.35</td>" in table.replace(' class="n"', "")  # er-ace minus er
    assert "+5.50" in table  # er+s6mod minus er-ace


def test_learners_of_one_method_are_paired_by_their_gains_alone(groups, tmp_path):
    groups({ER: (70.0, 72.0), OURS: (80.0, 82.0)})
    assert "Any two" not in page(read_runs([tmp_path]))

import pytest
import torch

from s6mod.errors import CheckpointError
from s6mod.learner.classes import Classes
from s6mod.serve.state import MOST_POINTS, Account, ServiceFiles, read


def test_an_account_comes_back_as_it_was_saved_and_its_curve_stays_short():
    account, classes = Account(), Classes(None, ("a", "b"))
    for number in range(3 * MOST_POINTS):
        account.count(number, ["a", "b"], classes, torch.tensor([True, number % 2 == 0]))
    assert account.images == {"a": 3 * MOST_POINTS, "b": 3 * MOST_POINTS}
    assert account.accuracy() == 75
    assert MOST_POINTS // 2 <= len(account.curve) <= MOST_POINTS
    assert Account.of(account.kept()).kept() == account.kept()


def test_another_rule_for_sizes_than_the_one_it_learned_by_is_refused(opened, monkeypatch):
    monkeypatch.setattr("s6mod.serve.state.RESIZING", "another rule")
    with pytest.raises(CheckpointError, match=r"expected images that are resized as here \(another rule\)"):
        read(ServiceFiles(opened.folder).checkpoint, None)

from s6mod.engine.alarms import PATIENCE, TOLD, raise_alarms


def figures(patterns, load=(0.5, 0.5), seen=(True, True, False), net=""):
    return {f"{net}patterns": list(patterns), f"{net}seen": list(seen), f"{net}pattern_load": list(load)}


def told(records, every=100, fixed=None):
    """The sentences at each record."""
    since = {}
    return [raise_alarms(each, fixed, since, (i + 1) * every, i * every) for i, each in enumerate(records)]


def test_collapsed_routing_is_told_once_after_many_steps():
    said = told([figures((1, 1, 2))] * 8)
    assert said[:4] == [[]] * 4
    assert said[PATIENCE // 100 - 1] == ["routing has collapsed: N_k = 1 of 2 for all classes since step 0"]
    assert said[5:] == [[]] * 3
    assert "N_k = 2 of 2" in told([figures((2, 2, 1))] * 5)[-1][0]


def test_routing_that_moves_is_not():
    assert not any(told([figures((1, 2, 1))] * 20))
    assert not any(told([figures((1, 1, 1)), figures((1, 1, 1)), figures((1, 2, 1))] * 9))


def test_what_was_chosen_by_hand_or_cannot_be_otherwise_is_no_collapse():
    assert not any(told([figures((1, 1, 1))] * 9, fixed=1))
    assert not any(told([figures((1, 1, 1), load=(1.0,))] * 9))  # one pattern
    assert not any(told([figures((2, 2, 2), seen=(True, False, False))] * 9))  # one class


def test_a_pattern_that_is_never_chosen_is_told_by_its_network():
    said = told([figures((1, 2, 2), load=(1.0, 0.0), net="net2/")] * 6)
    assert said[4] == ["net2/pattern 2 of 2 was chosen at no record since step 0"]


def test_a_run_that_goes_on_tells_nothing_again():
    since = {}
    for i in range(5):
        raise_alarms(figures((1, 1, 1)), None, since, 100 * (i + 1), 100 * i)
    assert since == {"N_k=1": TOLD}
    raise_alarms(figures((1, 2, 1)), None, since, 600, 500)
    assert since == {"N_k=1": TOLD}


def test_other_branches_raise_none():
    assert told([{}] * 9) == [[]] * 9

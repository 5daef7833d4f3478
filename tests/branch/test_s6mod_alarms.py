from s6mod.branch import S6MOD


def alarms(patterns, load=(0.5, 0.5), seen=(True, True, False), **options):
    branch = S6MOD(channels=4, num_classes=3, map_size=2, d_inner=4, num_patterns=len(load), **options)
    figures = {name: value.tolist() for name, value in branch.figures().items()}
    return branch.alarms(figures | {"patterns": list(patterns), "seen": list(seen), "pattern_load": list(load)})


def test_routing_that_gives_all_seen_classes_the_fewest_or_the_most_patterns_has_collapsed():
    assert alarms((1, 1, 2)) == {"N_k=1": "routing has collapsed: N_k = 1 of 2 for all classes"}
    assert alarms((2.0, 2.0, 1.0)) == {"N_k=2": "routing has collapsed: N_k = 2 of 2 for all classes"}
    assert alarms((1, 2, 1)) == {}
    assert alarms((2, 2, 2), load=(0.4, 0.3, 0.3)) == {}


def test_what_was_chosen_by_hand_or_cannot_be_otherwise_is_no_collapse():
    assert alarms((1, 1, 1), fixed_patterns=1) == {}
    assert alarms((1, 1, 1), load=(1.0,)) == {}  # one pattern
    assert alarms((2, 2, 2), seen=(True, False, False)) == {}  # one class


def test_a_pattern_that_is_not_chosen_is_named():
    assert alarms((1, 2, 2), load=(1.0, 0.0)) == {"pattern 2": "pattern 2 of 2 was chosen at no record"}

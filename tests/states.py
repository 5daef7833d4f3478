"""States of learners: writing them, and comparing them bit by bit."""

import torch

from s6mod.engine.checkpoint import Snapshot


def write_state(folder, tree, header):
    Snapshot.of(tree, header).write(folder)


def assert_same_tree(a, b, where=""):
    """Two trees of nested dicts hold the same keys and, to the bit, the same values."""
    assert a.keys() == b.keys(), where
    for key, value in a.items():
        path = f"{where}/{key}"
        if isinstance(value, dict):
            assert_same_tree(value, b[key], path)
        elif isinstance(value, torch.Tensor):
            assert value.dtype == b[key].dtype, path
            assert torch.equal(value, b[key]), path
        else:
            assert value == b[key], path


def trees_differ(a, b):
    try:
        assert_same_tree(a, b)
    except AssertionError:
        return True
    return False

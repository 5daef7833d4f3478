"""Every registered method, with and without a branch, behaves as ``s6mod.checks`` says."""

import fakes  # noqa: F401  registers a method that is unlike the others
import pytest

from s6mod import checks
from s6mod.methods import methods

# A control reads only the tap, which a pair of networks takes over from its method: there it would show nothing new.
LEARNERS = [
    (method, branch)
    for method in methods
    for branch in (None, "s6mod", "confidence")
    if branch != "confidence" or not method.endswith(methods.PAIR)
]


@pytest.mark.parametrize("check", checks.ALL, ids=lambda check: check.__name__)
@pytest.mark.parametrize(("method", "branch"), LEARNERS)
def test_every_registered_method_conforms(method, branch, check):
    check(method, branch)

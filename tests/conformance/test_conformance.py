"""Every registered method, with and without a branch, behaves as ``s6mod.checks`` says."""

import fakes  # noqa: F401  registers a method that is unlike the others
import pytest

from s6mod import checks
from s6mod.methods import methods


@pytest.mark.parametrize("check", checks.ALL, ids=lambda check: check.__name__)
@pytest.mark.parametrize("branch", [None, "s6mod", "confidence"])
@pytest.mark.parametrize("method", list(methods))
def test_every_registered_method_conforms(method, branch, check):
    check(method, branch)

import os

import pytest

from s6mod.threads import SPINS, spin_briefly


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, str(SPINS)), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "ACTIVE"}, None)],
)
def test_threads_spin_briefly_unless_the_user_has_said_how_they_wait(given, expected, monkeypatch):
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    spin_briefly()
    assert os.environ.get("GOMP_SPINCOUNT") == expected

import os
import subprocess
import sys

import numpy as np
import pytest

from s6mod.serve.predictions import Predictions
from s6mod.serve.settings import RefusedError
from services import SIDE

IMAGES = np.random.default_rng(0).integers(256, size=(4, 3, SIDE, SIDE), dtype=np.uint8)
SAID = (("cup", 0.5), (7, 0.25), ("pen", 1.0), ("cup", 0.75))
BEST = [{"label": label, "probability": share} for label, share in SAID]
KILLED = """
import os, signal, sys
from pathlib import Path
import numpy as np
from s6mod.serve.predictions import Predictions
kept = Predictions(Path(sys.argv[1]), 10, (8, 8))
print(kept.add(np.full((1, 3, 8, 8), 9, np.uint8), [{"label": "cup", "probability": 0.5}])[0], flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def opened(tmp_path):
    made = []

    def open_it(most=10):
        made.append(Predictions(tmp_path / "predictions.db", most, (SIDE, SIDE)))
        return made[-1]

    yield open_it
    for each in made:
        each.close()


def test_they_come_back_as_they_were_the_newest_first(opened):
    kept = opened()
    ids = kept.add(IMAGES, BEST)
    np.testing.assert_array_equal(kept.images(ids[::-1]), IMAGES[::-1])
    latest = opened().latest(3)
    assert [(each["id"], each["label"], each["probability"]) for each in latest] == [
        (ids[3], "cup", 0.75),
        (ids[2], "pen", 1.0),
        (ids[1], 7, 0.25),
    ]
    np.testing.assert_array_equal(latest[0]["image"], IMAGES[3])


def test_the_oldest_go_first(opened):
    kept = opened(most=5)
    first, second = kept.add(IMAGES, BEST), kept.add(IMAGES, BEST)
    kept.images([first[3], *second])
    with pytest.raises(RefusedError, match="expected one of the latest 5 predictions made here, got") as told:
        kept.images([second[0], first[2]])
    assert (told.value.status, kept.total) == (404, 8)


def test_one_that_was_answered_outlives_a_kill(opened, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", KILLED, tmp_path / "predictions.db"], capture_output=True, text=True, env=os.environ
    )
    assert done.returncode == -9
    assert (opened().images([done.stdout.strip()]) == 9).all()


def test_a_prediction_that_cannot_be_kept_is_answered_all_the_same(opened):
    kept = opened()
    kept._ask("PRAGMA query_only=ON")  # as a full disk
    assert len(kept.add(IMAGES, BEST)) == 4
    assert kept.latest(9) == []

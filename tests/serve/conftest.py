from contextlib import contextmanager

import pytest

from s6mod.serve.settings import Limits
from s6mod.serve.writer import Writer
from services import RULES, SIDE, small


@pytest.fixture
def opened(tmp_path):
    """Opens the service of one folder, again and again."""
    run = pytest.importorskip("s6mod.serve.run", exc_type=ImportError)  # without the extra
    folder = tmp_path / "service"
    run.prepare(folder, small, (SIDE, SIDE))

    @contextmanager
    def open_it(rules=RULES, limits=None):
        service = Writer(folder, None, limits or Limits(), rules)
        service.start()
        try:
            yield service
        finally:
            service.stop()

    open_it.folder = folder
    return open_it

import errno
import os
import subprocess
import sys
import threading

import pytest

from s6mod.errors import CheckpointError
from s6mod.locks import Turn, alone_in, held, hold, let_go


def test_one_at_a_time_is_alone_in_a_folder(tmp_path):
    handle = hold(tmp_path)
    assert held(tmp_path)
    assert hold(tmp_path) is None
    forked = os.dup(handle)  # as a process has it that was forked meanwhile
    let_go(handle)
    assert not held(tmp_path)
    os.close(forked)
    with alone_in(tmp_path):
        assert held(tmp_path)
    assert not held(tmp_path)
    assert not held(tmp_path / "nowhere")


@pytest.mark.parametrize("take", [hold, held, lambda folder: alone_in(folder).__enter__()])
def test_a_file_system_without_locks_is_not_taken_for_a_folder_that_somebody_has(tmp_path, monkeypatch, take):
    def flock(handle, kind):
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", flock)
    with pytest.raises(CheckpointError, match=r"expected a file system with locks, got .*: Operation not supported; "):
        take(tmp_path)


def test_a_thread_that_wants_it_again_and_again_lets_others_have_it_in_between():
    turn, wants, order = Turn(), threading.Event(), []

    def other():
        wants.set()
        for _ in range(3):
            with turn:
                order.append("other")

    thread = threading.Thread(target=other)
    with turn, turn:  # its holder may take it again
        thread.start()
        wants.wait(60)
        while not turn._next.locked():
            pass
    for _ in range(3):
        with turn:
            order.append("one")
    thread.join()
    assert order[0] == "other"
    assert sorted(order) == ["one"] * 3 + ["other"] * 3


def test_a_system_without_locks_is_refused_in_one_sentence():
    """As Windows is."""
    program = "import sys; sys.modules['fcntl'] = None; from s6mod import Learner"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    last = done.stderr.splitlines()[-1]
    assert last.startswith(
        "ImportError: expected Linux or another POSIX system, got one without fcntl, as Windows is; "
    )

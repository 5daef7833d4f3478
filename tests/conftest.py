"""One thread per test process (the suite runs one a core, and small tensors gain nothing from more), and ``call``."""

import sys

import pytest
import torch

from s6mod import cli

torch.set_num_threads(1)


@pytest.fixture
def call(monkeypatch, capsys):
    """Run a command in this process: exit code, standard output, standard error."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["s6mod", *map(str, arguments)])
        monkeypatch.setenv("COLUMNS", "100")
        code = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = stop.code or 0
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run

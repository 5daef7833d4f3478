"""What a person meets first: how the command starts and stops, what its help and its hints say."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import typer
import yaml

from s6mod.cli.commands import app

ROOT = Path(__file__).parents[2]


def s6mod(*words, **environment):
    """The command in a process of its own."""
    command = [sys.executable, "-m", "s6mod", *words]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | environment)


# --- starting and stopping ------------------------------------------------------------------------------------


def test_python_runs_the_package_and_help_calls_it_by_its_name():
    done = s6mod("train", "--help")
    assert done.returncode == 0, done.stderr
    assert "Usage: s6mod train [OPTIONS]" in done.stdout


def test_the_entry_point_imports_next_to_nothing_before_it_can_be_stopped():
    program = "import sys; before = set(sys.modules); import s6mod.cli; print(len(set(sys.modules) - before))"
    found = os.environ | {"PYTHONPATH": str(ROOT / "src")}  # -S looks nowhere else
    done = subprocess.run([sys.executable, "-S", "-c", program], capture_output=True, text=True, env=found)
    assert int(done.stdout) == 3, done.stderr  # s6mod, its version and s6mod.cli


@pytest.mark.parametrize("seconds", [0.0, 0.05, 0.2])
def test_whoever_stops_it_as_it_starts_sees_no_traceback(seconds):
    program = (
        "import signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # as from a terminal, wherever the tests run
        "from s6mod.cli import main\n"
        "class Watch:\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 's6mod.cli.commands':\n"  # the first thing that main does
        "            print('up', flush=True)\n"
        "sys.meta_path.insert(0, Watch())\n"
        "sys.argv = ['s6mod', 'bench']\n"
        "main()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "up\n"
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
    assert (process.returncode, err) == (130, "")


def test_whoever_stops_it_in_an_import_that_passes_over_it_stops_it_all_the_same(tmp_path):
    (tmp_path / "module.py").write_text(
        "import signal\ntry:\n    signal.raise_signal(signal.SIGINT)\nexcept KeyboardInterrupt:\n    pass\n"
    )
    program = (
        "import signal, sys, types\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from s6mod.cli import main\n"
        "def run():\n"
        "    import module\n"
        "    print('it goes on')\n"
        "sys.modules['s6mod.cli.commands'] = types.SimpleNamespace(run=run)\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_whoever_stops_it_elsewhere_is_heard_by_what_is_under_way(monkeypatch, call):
    heard = []

    def run():
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            heard.append(True)
            raise

    monkeypatch.setattr("s6mod.cli.commands.run", run)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # as from a terminal, wherever the tests run
    try:
        assert call() == (130, "", "")
        assert heard
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


# --- help and completion --------------------------------------------------------------------------------------


def test_a_flag_is_shown_without_a_type(call):
    commands = typer.main.get_command(app).commands
    for words in ((), *((name,) for name in commands), *(("runs", name) for name in commands["runs"].commands)):
        code, out, err = call(*words, "--help")
        assert code == 0, err
        assert "--help" in out
        assert "bool" not in out.lower(), words
    assert "<int" in call("train", "--help")[1]  # what takes a value says which


def completed(words):
    line = f"s6mod {words}"
    asked = {"_S6MOD_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    return s6mod(**asked).stdout.split()


def test_a_shell_can_be_taught_to_complete(call):
    assert all(f"--{what}-completion" in call("--help")[1] for what in ("install", "show"))
    assert "_S6MOD_COMPLETE=complete_bash" in s6mod(_S6MOD_COMPLETE="source_bash").stdout


def test_a_shell_can_ask_how_a_word_goes_on():
    assert completed("st") == ["study"]
    assert completed("train --show-c") == ["--show-config"]
    assert completed("train --method er-") == ["er-ace", "er-ace-ccldc", "er-ccldc", "er-lwf"]
    assert completed("train --branch s") == ["s6mod", "smoothing"]
    assert completed("train --data cifar") == ["cifar10", "cifar100"]
    assert completed("sweep er,ocm+s6") == ["er,ocm+s6mod"]
    assert completed("sweep er+s6mod/dig") == ["er+s6mod/digits"]


def test_completing_a_word_runs_no_file_that_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("my_parts.py").write_text("open('was-run', 'w')")
    assert completed("train --import my_parts.py --method er-c") == ["er-ccldc"]
    assert not Path("was-run").exists()
    s6mod("train", "--import", "my_parts.py", "--show-config")
    assert Path("was-run").exists()


# --- what is meant by few words -------------------------------------------------------------------------------


def test_a_report_is_of_the_runs_in_the_usual_folder(tmp_path, monkeypatch, call, write_run):
    monkeypatch.chdir(tmp_path)
    code, _, err = call("report")
    assert (code, err.count("\n")) == (2, 1)
    write_run(tmp_path / "runs", "er/digits/200")
    code, out, err = call("report")
    assert (code, out) == (0, "report.html\n"), err
    assert "digits" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--set=tasks=2"], "did you mean 'stream.tasks'?"),
        (["--set=lr=0.1"], "did you mean 'method.optimizer.lr'?"),
        (["--method=ocm", "--set=temperature=0.1"], "did you mean 'method.temperature'?"),
        (["--branch=s6mod", "--set=alpha=2"], "did you mean 'branch.alpha'?"),
        (["--set=name=er"], "did you mean 'method.name' or 'method.optimizer.name' or 'data.name'?"),
        (["--set=method.lr=0.1"], "did you mean 'optimizer.lr'?"),
        (["--set=memory=3"], "did you mean 'memory_size'?"),
        (["--set=stream.task=3"], "did you mean 'stream.tasks'?"),
    ],
)
def test_a_key_without_its_path_is_found(call, words, hint):
    code, _, err = call("train", *words)
    assert (code, err.count("\n")) == (2, 1)
    assert err.rstrip().endswith(hint)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["train", "--method=ER"], "did you mean 'er'?"),
        (["sweep", "ER+S6MOD", "--plan"], "did you mean 'er'?"),
        (["train", "--data=CIFAR-100"], "did you mean 'cifar100'?"),
        (["train", "--method=er+s6mod"], "give --method er --branch s6mod"),
        (["train", "--method=der+++s6mod+mkd"], "give --method der++ --branch s6mod --teacher mkd"),
    ],
)
def test_a_learner_that_is_written_as_the_docs_speak_of_it_is_understood(call, words, hint):
    code, _, err = call(*words)
    assert (code, err.count("\n")) == (2, 1)
    assert hint in err


def test_docs_and_messages_install_extras_from_the_clone():
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/**/*.py")]
    lines = [line for page in pages for line in page.read_text(encoding="utf-8").splitlines() if "pip install" in line]
    assert len(lines) > 5
    assert [line for line in lines if re.search(r"pip install\W+s6mod\b", line)] == []
    assert re.search(r"pip install\W+s6mod\b", "run: pip install 's6mod[plots]'")  # what is looked for is found


# --- own data -------------------------------------------------------------------------------------------------


def photos(file, classes):
    images = np.random.default_rng(0).integers(0, 256, (8 * classes, 8, 8, 3), dtype=np.uint8)
    np.savez(file, images=images, labels=np.arange(8 * classes) % classes)
    return file


def tasks(call, *words):
    code, out, err = call("train", *words, "--show-config")
    assert code == 0, err
    return yaml.safe_load(out)["stream"]["tasks"]


def test_own_data_of_few_classes_has_as_many_tasks_and_other_data_as_many_as_ever(tmp_path, monkeypatch, call):
    monkeypatch.setenv("S6MOD_DATA", str(tmp_path))
    four, seven = photos(tmp_path / "four.npz", 4), photos(tmp_path / "seven.npz", 7)
    assert tasks(call, "--data", four) == 4
    assert tasks(call, "--data", seven) == 5
    assert tasks(call, "--data", four, "--set=stream.tasks=2") == 2
    assert tasks(call, "--data", tmp_path / "not-there.npz") == 5
    assert tasks(call, "--data", "digits") == tasks(call) == 5
    assert tasks(call, "--data", "cifar100") == 10
    assert call("data", four)[0] == 0  # prepared, it is known by its name
    assert tasks(call, "--data", "four") == 4


@pytest.mark.filterwarnings("ignore:read the original files")
@pytest.mark.usefixtures("quick_start")
def test_own_data_of_few_classes_can_be_trained_on_swept_and_shown(tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    photos("three.npz", 3)
    small = ["--memory", 6, "--set=method.network.width=2", "--set=method.memory_batch=2", "--quiet"]
    code, _, err = call("train", "--data", "three.npz", *small)
    assert code == 0, err
    code, out, err = call("sweep", "er", "--data", "three.npz", "--seeds", "0-1", "--plan", *small)
    assert "done: 1 result from 1 training" in out, err  # the same run
    code, out, err = call("data", "three.npz", "--stream", "kind=blurry")
    assert code == 0, err
    assert out.count("%") == 3

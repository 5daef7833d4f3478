import errno
import json
import multiprocessing
import pwd
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import typer
import yaml
from rich.console import Console

from s6mod.cli.app import COMMANDS, PANELS
from s6mod.cli.commands import app
from s6mod.config import merge
from s6mod.learner import Learner
from s6mod.runs import bench, bench_growth, bench_live
from s6mod.runs.bench_values import bench_values
from s6mod.runs.execute import Interrupted
from s6mod.runs.name import run_hash
from s6mod.runs.store import scan

QUICK = [
    "--set=method.network.width=4", "--set=method.memory_batch=8", "--set=stream.samples_per_task=30",
    "--set=stream.tasks=2",
]  # fmt: skip


def test_help_needs_no_torch_and_importing_the_package_needs_no_extra():
    program = (
        "import sys; sys.argv = ['s6mod', 'train', '--help']\n"
        "from s6mod.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'numpy', 'sklearn', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "import s6mod; s6mod.Learner; s6mod.S6MOD\n"
        "extras = {'matplotlib', 'kornia', 'ray', 'optuna', 'wandb', 'mlflow', 'tensorboard', 'torchvision', 'onnx'}\n"
        "assert not extras & set(sys.modules), extras & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "What to run" in done.stdout


def test_the_five_options_that_matter_stand_together(call):
    _, out, _ = call("train", "--help")
    panel = out[out.index("What to run") : out.index("How to run it")]
    assert all(f"--{name}" in panel for name in ("method", "branch", "data", "memory", "seed"))


def test_each_command_stands_in_its_panel_on_one_line_in_the_order_in_which_a_person_meets_them(call):
    assert sorted(COMMANDS) == sorted(typer.main.get_command(app).commands)
    _, out, _ = call("--help", columns=80)
    panels = re.split(r"^╭─ (.+?) ─+╮$", out, flags=re.MULTILINE)
    shown = dict(zip(panels[1::2], panels[2::2], strict=True))
    lines = {name: re.findall(r"^│ (\w*) ", text, re.MULTILINE) for name, text in shown.items() if name != "Options"}
    assert lines == {name: list(commands) for name, commands in PANELS.items()}


def test_help_shows_every_default(call):
    for command, default in (("train", "er"), ("tune", "20"), ("table", "1 and 2")):
        _, out, _ = call(command, "--help")
        assert f"(default: {default})" in out
    for command in _leaves(typer.main.get_command(app)):
        texts = [command.help or "", *(parameter.help or "" for parameter in command.params)]
        assert not any("[" in text for text in texts), command.name  # rich takes it for a style and drops it


def _leaves(command):
    children = getattr(command, "commands", {}).values()
    return [leaf for child in children for leaf in _leaves(child)] or [command]


def test_a_disk_that_takes_no_more_is_one_sentence(monkeypatch, call):
    def full(*_):
        raise OSError(errno.EFBIG, "File too large")

    monkeypatch.setattr("s6mod.report.demo.run_demo", full)
    code, _, err = call("demo")
    assert (code, err.count("\n")) == (2, 1)
    assert "got: File too large" in err


@pytest.mark.parametrize("command", COMMANDS)
def test_resuming_is_advised_only_where_a_command_can(command, monkeypatch, call):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    takes = {"study": "alpha er", "ablate": "er", "tune": "er", "runs": "list"}
    takes |= {"predict": "there image.png", "export": "there model.onnx"}
    takes |= dict.fromkeys(("report", "features", "inside", "serve"), "there")
    resumes = "--resume" in call(command, "--help")[1]
    monkeypatch.setattr("typer.core.TyperCommand.invoke", full)
    code, _, err = call(command, *takes.get(command, "").split())
    assert (code, err.count("\n")) == (2, 1)
    assert "mend that and try again" in err
    assert ("--resume" in err) == resumes == (command == "train")


def test_a_demo_that_was_stopped_says_that_it_begins_anew(tmp_path, monkeypatch, call):
    def stopped(runs):
        raise Interrupted([], len(list(runs)), signal.SIGINT)

    monkeypatch.setattr("s6mod.report.demo.execute", stopped)
    code, _, err = call("demo", "--seeds", 1, "--out", tmp_path / "demo")
    assert code == 130
    assert err == "error: stopped by SIGINT; 3 not begun; the same command begins anew\n"


def test_a_study_of_patterns_takes_whole_numbers(call):
    code, _, err = call("study", "patterns", "er", "--values", "1.5")
    assert code == 2
    assert "expected numbers such as 1,2,4" in err


def test_every_command_can_say_what_it_does(call):
    commands = typer.main.get_command(app).commands
    assert len(commands) > 10
    for command in commands:
        code, out, err = call(command, "--help")
        assert code == 0, err
        assert f"s6mod {command}" in out


def test_predictors_shows_what_would_predict_best_from_one_training(tmp_path, call):
    for average in (0.9, 0.5):
        options = ["--seeds", "1,2", "--out", tmp_path, "--set", f"average={average}", *QUICK]
        code, _, err = call("train", *options)
        assert code == 0, err
    code, out, err = call("predictors", tmp_path)
    assert code == 0, err
    cells = out.strip().split("\n\n")
    assert sorted(re.findall(r"average=[\d.]+", out)) == ["average=0.5", "average=0.9"]
    for title, ways, *rows in map(str.splitlines, cells):
        assert title.endswith(" float32, 2 seeds")
        assert ways.split() == ["latest/running", "latest/memory", "averaged/running", "averaged/memory"]
        assert [row.split()[0] for row in rows] == ["head", "ncm", "ensemble"]
        assert all(row.count("±") == 4 for row in rows)
    plain = json.loads(call("predictors", tmp_path, "--json")[1])
    assert len(plain) == 2 * 3 * 4
    assert {(row["precision"], row["n"]) for row in plain} == {("float32", 2)}
    best = {cell: max(row["mean"] for row in plain if row["cell"] == cell) for cell in {row["cell"] for row in plain}}
    assert sorted(f"{mean:.2f}" for mean in best.values()) == sorted(re.findall(r"([\d.]+)±[\d.]+\*", out))
    code, _, err = call("predictors", tmp_path, "--cell", "mose")
    assert (code, err.count("\n")) == (2, 1)
    assert "expected a finished run that scored what could predict" in err


def test_train_writes_a_run_and_resume_shows_its_result(tmp_path, call):
    folder = tmp_path / "run"
    code, out, err = call("train", "--branch", "confidence", "--seed", 2, "--out", folder, *QUICK)
    assert code == 0, err
    assert "er+confidence/digits" in out.replace("\n", "")
    result = json.loads((folder / "result.json").read_text())
    assert result["seed"] == 2
    code, out, _ = call("train", "--resume", folder)
    assert code == 0
    code, out, _ = call("train", "--resume", folder, "--data-root", "there", "--show-config")
    assert (yaml.safe_load(out)["seed"], yaml.safe_load(out)["data"]["root"]) == (2, str(Path("there").absolute()))
    code, _, err = call("train", "--resume", folder, "--seed", 3)
    assert code != 0
    assert "--seed" in err


def test_a_run_that_ends_with_an_error_is_listed_as_failed_until_it_goes_on(tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    learn = Learner.learn

    def break_down(self, x, y):
        if self.steps == 3:
            raise RuntimeError("a bug of somebody's")
        learn(self, x, y)

    def status():
        [run] = scan([tmp_path / "runs"]).runs
        return run.status

    monkeypatch.setattr(Learner, "learn", break_down)
    with pytest.raises(RuntimeError, match="a bug of somebody's"):
        call("train", "--out", "runs/mine", "--set=output.checkpoint_every=2", *QUICK)
    assert status() == "failed"
    assert "in break_down" in Path("runs/mine/failure.txt").read_text()
    monkeypatch.setattr(Learner, "learn", learn)
    code, _, err = call("train", "--out", "runs/mine", *QUICK)  # refused: it would have to be resumed
    assert (code, status()) == (2, "failed"), err
    assert call("train", "--resume", "runs/mine")[0] == 0
    assert status() == "finished"
    assert not Path("runs/mine/failure.txt").exists()


@pytest.mark.filterwarnings("ignore:read the original files")
def test_a_finished_run_shows_its_result_when_its_data_is_gone(tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    np.savez("photos.npz", images=np.zeros((8, 8, 8, 3), np.uint8), labels=np.arange(8) % 2)
    small = ["--set=method.network.width=2", "--set=stream.tasks=2", "--set=method.memory_batch=2"]
    code, shown, err = call("train", "--data", "photos.npz", "--out", "run", "--memory", 4, "--quiet", *small)
    assert code == 0, err
    Path("photos.npz").unlink()
    assert call("train", "--resume", "run")[:2] == (0, shown)
    Path("run/result.json").write_text("{}")
    code, _, err = call("train", "--resume", "run")
    assert (code, err.count("\n"), "run/result.json" in err) == (2, 1, True)


@pytest.mark.filterwarnings("ignore:read the original files")
def test_a_run_finds_its_data_again_from_any_folder(tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    np.savez("photos.npz", images=np.zeros((8, 8, 8, 3), np.uint8), labels=np.arange(8) % 2)
    small = ["--set=method.network.width=2", "--set=stream.tasks=2", "--set=method.memory_batch=2"]
    begin = ["train", "--data", "photos", "--data-root", "photos.npz", "--memory", 4, "--quiet", *small]
    assert call(*begin, "--out", "run")[0] == 0
    begun = json.loads(Path("run/config.json").read_text())
    assert begun["hash"] == run_hash(merge(begun["config"], {"data": {"root": None}}))  # a place is no part of the name
    Path("run/result.json").unlink()
    monkeypatch.chdir("/")
    code, _, err = call("train", "--resume", tmp_path / "run", "--quiet")
    assert code == 0, err


@pytest.mark.parametrize("one", ["--seed=7", "--set=seed=7"])
def test_one_seed_beside_several_is_refused(call, one):
    code, _, err = call("train", "--seeds", "0-1", one, "--show-config")
    assert (code, "or --seeds, not both" in err) == (2, True)


def test_a_range_of_seeds_is_not_taken_for_one(call):
    code, _, err = call("train", "--seed", "0-2", "--show-config")
    assert (code, "expected one seed such as 3, got '0-2'" in err) == (2, True)
    assert "seed: 3\n" in call("train", "--seed", "3", "--show-config")[1]


def test_later_sources_win(tmp_path, call):
    file = tmp_path / "run.yaml"
    file.write_text("branch: s6mod\nmemory_size: 77\nseed: 5\nmethod: {name: er, memory_batch: 9}\n")
    code, out, err = call(
        "train", "--config", file, "--seed", 6, "--set=method.memory_batch=11",
        "--set=branch.alpha=0.5", "--show-config",
    )  # fmt: skip
    assert code == 0, err
    values = yaml.safe_load(out)
    assert values["branch"]["name"] == "s6mod"
    assert values["branch"]["alpha"] == 0.5
    assert values["branch"]["num_patterns"] == 8  # the preset of digits
    assert (values["memory_size"], values["seed"], values["method"]["memory_batch"]) == (77, 6, 11)
    assert values["method"]["network"]["width"] == 8  # the preset again
    code, out, _ = call("train", "--config", file, "--branch", "none", "--show-config")
    assert yaml.safe_load(out)["branch"] is None
    code, out, _ = call("train", "--config", file, "--branch", "confidence", "--show-config")
    assert yaml.safe_load(out)["branch"] == {"name": "confidence", "alpha": 1.0}


def test_a_part_may_be_a_bare_name_wherever_it_is_given(call):
    _, out, _ = call(
        "train", "--set=branch=s6mod", "--set=branch.alpha=0.5", "--set=method=er",
        "--set=data=cifar100", "--show-config",
    )  # fmt: skip
    values = yaml.safe_load(out)
    assert (values["branch"]["name"], values["branch"]["alpha"]) == ("s6mod", 0.5)
    assert values["data"]["name"] == "cifar100"
    assert values["stream"]["tasks"] == 10  # the preset of the data set named


def test_several_seeds_go_on_where_they_were(tmp_path, call):
    command = ["train", "--seeds", "0-1", "--out", tmp_path, *QUICK]
    code, _, err = call(*command)
    assert code == 0, err
    first, second = sorted(tmp_path.iterdir())
    before = (first / "result.json").read_bytes()
    (second / "result.json").unlink()
    code, _, err = call(*command)
    assert code == 0, err
    assert (first / "result.json").read_bytes() == before
    assert (second / "result.json").exists()
    code, _, err = call("train", "--seeds", "3-1")
    assert code == 2
    assert "low to high" in err


def test_without_a_terminal_there_is_one_line_at_the_end_of_each_task(tmp_path, call):
    _, out, _ = call("train", "--out", tmp_path / "r", *QUICK, "--set=output.log_every=2")
    assert [line.split("step ")[1].split(",")[0] for line in out.splitlines() if ": step " in line] == ["3/6", "6/6"]


def test_presets_hold_the_published_settings(call):
    for data, patterns, tasks in (("cifar10", 10, 5), ("cifar100", 8, 10)):
        _, out, _ = call("train", "--data", data, "--branch", "s6mod", "--show-config")
        values = yaml.safe_load(out)
        assert values["branch"]["num_patterns"] == patterns
        branch = values["branch"]
        assert (branch["view"], branch["alpha"], branch["beta"]) == ("fresh", 1.0, 0.0)  # not the paper's: see docs
        assert values["stream"]["tasks"] == tasks
        assert values["method"]["network"]["width"] == 64


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["--method", "err"], "did you mean 'er'"),
        (["--branch", "s6mode"], "did you mean 's6mod'"),
        (["--method", "iid"], "got 'iid', a kind of stream; write --set stream.kind=iid"),
        (["--data", "cifar1000"], "did you mean 'cifar100'"),
        (["--set=method.memory_bach=3"], "did you mean 'memory_batch'"),
        (["--set=memory=3"], "memory_size"),
        (["--set=method.optimizer.lr=fast"], "method"),
        (["--set", "novalue"], "key=value"),
        (["--config", "nowhere.yaml"], "nowhere.yaml"),
        (["--config", "[my]:dog:.yaml"], "[my]:dog:.yaml"),  # neither markup nor a picture
        (["--device", "tpu"], "device"),
        (["--resume", "nowhere"], "check the path"),
        (["--branch=s6mod", "--set=branch.d_inner=4"], "d_inner"),
        (["--data=cifar100", "--data-root=nowhere"], "nowhere"),
        (["--memory", "0"], "memory_size"),
        (["--set=method.optimizer.betas=[2,3]"], "betas"),
        (["--set=data=cifar1000"], "did you mean 'cifar100'"),
        (["--set=branch=3"], "expected the name of a branch or a mapping with one, got 3"),
        (["--set=branch=0"], "got 0"),
        (["--set=method.optimizer.lr=.inf"], "got inf"),
        (["--set=stream.tasks=&a [*a]"], "expected a YAML value after stream.tasks="),
        (["--seeds=0-100000000000"], "expected at most 10,000 seeds"),
        (["--set=branch.alpha=0.5"], "expected a branch for branch.alpha, got none; add --branch s6mod"),
        (["--set=teacher.weight=1"], "expected a teacher for teacher.weight, got none; add --teacher mkd"),
        (["--teacher=mkd", "--method=scr"], "expected no teacher on method 'scr', which has no logits"),
    ],
)
def test_mistakes_are_one_sentence_and_leave_nothing(tmp_path, monkeypatch, arguments, hint, call):
    monkeypatch.chdir(tmp_path)
    code, out, err = call("train", *arguments)
    assert code == 2
    assert hint in err
    assert err.count("\n") == 1
    assert "Traceback" not in out + err
    assert list(Path(tmp_path).iterdir()) == []


def test_demo_will_not_replace_a_folder_of_somebody_else(tmp_path, call):
    (tmp_path / "thesis.tex").write_text("x")
    code, _, err = call("demo", "--out", tmp_path)
    assert code == 2
    assert "choose another --out" in err
    assert (tmp_path / "thesis.tex").exists()


@pytest.mark.usefixtures("quick_start")
def test_bench_prints_milliseconds_memory_and_ratio(call, monkeypatch):
    quick = SimpleNamespace(get_context=lambda _: multiprocessing.get_context("forkserver"))
    monkeypatch.setattr(bench, "multiprocessing", quick)
    monkeypatch.setattr(bench, "IMAGE_SHAPE", (3, 8, 8))  # here; the processes that tell the memory have the real one
    branches = "none,s6mod,s6mod/view=fresh,s6mod/method.memory_batch=8"  # the third is as the second by its preset
    code, out, err = call("bench", "--width", 1, "--seconds", 0, "--json", "--branches", branches)
    assert code == 0, err
    rows = {row["learner"]: row for row in json.loads(out)["rows"]}
    assert rows.keys() == {"er", "er+s6mod", "er+s6mod/method.memory_batch=8"}
    assert rows["er"]["ratio"] == 1
    assert all(row["ms_per_step"] > 0 and row["peak_bytes"] > 0 for row in rows.values())
    assert all(row["reference"] is None for row in rows.values())  # a GPU's, which is no figure beside a CPU's


def test_bench_measures_a_method_that_refuses_branches_alone_and_an_average_or_a_teacher_beside_it(monkeypatch):
    measured = []
    monkeypatch.setattr(bench, "measure", lambda contenders, *rest: measured.extend(contenders) or [])
    branches = ["none", "none/average=0.99", "mkd", "s6mod"]
    bench.run_bench(bench.Bench(["er", "scr"], branches, bench_values, 1, 0.0, "cpu", "auto", True, Console()))
    names = ["er", "er/average=0.99", "er+mkd", "er+s6mod", "scr", "scr/average=0.99"]
    assert [each.name for each in measured] == names
    monkeypatch.setattr(bench, "IMAGE_SHAPE", (3, 8, 8))
    assert measured[1].learner().average is not None
    assert measured[2].learner().teaching is not None


def test_bench_shows_what_growth_costs(call, monkeypatch):
    monkeypatch.setattr(bench_growth, "AXES", {"classes": (10, 130), "memory": (8, 9), "image": (8, 16)})
    monkeypatch.setattr(bench_growth, "TURNS", 1)
    code, out, err = call("bench", "--growth", "--branches", "none,s6mod", "--width", 1, "--seconds", 0, "--json")
    assert code == 0, err
    rows = json.loads(out)["growth"]
    axes = [("classes", 10), ("classes", 130), ("memory", 8), ("memory", 9), ("image", 8), ("image", 16)]
    assert [(row["axis"], row["value"], row["learner"]) for row in rows] == [
        (*at, learner) for at in axes for learner in ("er", "er+s6mod")
    ]
    for row in rows:
        assert min(row["ms_per_step"], row["ms_per_prediction"]) > 0
        if (row["axis"], row["value"]) in axes[::2]:
            assert row["step_ratio"] == row["prediction_ratio"] == 1


def test_bench_shows_predictions_while_another_thread_learns(call, monkeypatch):
    monkeypatch.setattr(bench, "IMAGE_SHAPE", (3, 8, 8))
    monkeypatch.setattr(bench_live, "TURNS", 1)
    code, out, err = call("bench", "--live", "--branches", "none", "--width", 1, "--seconds", 0, "--json")
    assert code == 0, err
    rows = json.loads(out)["live"]
    assert [row["case"] for row in rows] == [case.name for case in bench_live.CASES]
    for row, case in zip(rows, bench_live.CASES, strict=True):
        assert (row["predictions"] > 0, row["p50_ms"] is not None) == (case.asked is not None,) * 2
        assert (row["steps_per_second"] is not None) == case.learning
        assert 0 < row["copy_bytes"] < row["learner_bytes"]
    assert rows[1]["share"] == 1


def test_bench_refuses_two_tables_at_once(call):
    code, _, err = call("bench", "--growth", "--live")
    assert code == 2
    assert "got both" in err


@pytest.mark.parametrize("change", ["engine.precision=float32", "statistics=memory", "stream.limit=9"])
def test_bench_refuses_changes_that_it_would_not_measure(call, change):
    code, _, err = call("bench", "--branches", f"none,s6mod/{change}")
    assert code == 2
    assert f"got '{change}'" in err


@pytest.fixture
def homeless(monkeypatch):
    """A user without a passwd entry and without HOME, as in many containers."""

    def nobody(*_):
        raise KeyError

    for name in ("HOME", "S6MOD_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)


@pytest.mark.usefixtures("homeless")
def test_a_user_without_a_home_can_train_on_digits_and_list_and_report_runs(tmp_path, call):
    assert call("train", "--data", "digits", "--quiet", "--out", tmp_path / "runs" / "r", *QUICK)[0] == 0
    assert call("runs", tmp_path / "runs")[0] == 0
    assert call("report", tmp_path / "runs", "--store", tmp_path / "runs", "--out", tmp_path / "page.html")[0] == 0
    assert call("data", "--data-root", tmp_path)[0] == 0
    assert call("data", "digits", "--data-root", tmp_path)[0] == 0


@pytest.mark.usefixtures("homeless")
@pytest.mark.parametrize(
    "words",
    [
        ["data"], ["data", "cifar10"], ["train", "--data", "cifar10"], ["train", "--data", "~/x"], ["data", "~/x"],
        ["train", "--data", "~nobody-at-all/x"], ["train", "--data-root", "~nobody-at-all/x"],
        ["data", "--data-root", "~nobody-at-all/x"], ["sweep", "er/mine/200", "--yes"],
    ],
)  # fmt: skip
def test_what_needs_a_home_and_has_none_is_one_sentence(call, words):
    code, out, err = call(*words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "expected a home folder" in err


@pytest.mark.parametrize(
    ("assignment", "why"),
    [
        ("memory_size=10000000000000", "less than or equal to 1000000000"),
        ("method.network.width=100000", "less than or equal to 10000"),
        ("num_classes=1000000000", "less than or equal to 1000000"),
        ("engine.eval_batch=10000000000000000000", "expected a whole number of at most"),
        ("method.memory_batch=10000000000000000000", "expected a whole number of at most"),
    ],
)
def test_numbers_beyond_reason_are_refused_at_the_door(tmp_path, call, assignment, why):
    code, _, err = call("train", "--data", "digits", "--out", tmp_path / "r", "--set", assignment)
    assert (code, err.count("\n")) == (2, 1)
    assert assignment.partition("=")[0].rpartition(".")[2] in err
    assert why in err
    assert not (tmp_path / "r").exists()


LIMITED = """
import resource, sys
import torch
from s6mod.cli import main
from s6mod.errors import ResourceError
from s6mod.learner import Learner

torch.set_num_threads(1)
resource.setrlimit(resource.RLIMIT_AS, (8 << 30,) * 2)
try:
    Learner(num_classes=10, memory_size=100_000_000).build((3, 32, 32))
except ResourceError as error:
    print(error, file=sys.stderr)
step = "method={name: er-ccldc, collaboration: {rand_augment: {operations: 100000000000}}}"  # drawn for each image
for field in ("memory_size=100000000", "branch={d_inner: 65536, state_dim: 4096}", step):
    sys.argv = ["s6mod", "train", "--quiet", "--branch", "s6mod", "--set", field, "--out", sys.argv[-1]]
    try:
        main()
    except SystemExit as end:
        assert end.code == 2, end
"""


def test_memory_that_is_not_there_is_one_sentence(tmp_path):
    # With so little memory a GPU cannot even be looked for, which torch warns of.
    command = [sys.executable, "-W", "ignore:CUDA initialization", "-c", LIMITED, str(tmp_path / "r")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    said = done.stderr.splitlines()
    assert len(said) == 4
    assert [line.removeprefix("error: ").partition(", got")[0] for line in said] == [
        "expected enough memory for the learner",
        "expected enough memory for the learner",
        "expected enough memory for the learner",
        "expected enough memory for a batch of 10 images",
    ]

import math
import re
from pathlib import Path

import pytest
from fakes import DuoConfig
from rich.console import Console

from s6mod.branch import branches
from s6mod.errors import ConfigError
from s6mod.experiments.costs import _table, cost
from s6mod.experiments.plan import span
from s6mod.experiments.progress import SweepDisplay
from s6mod.experiments.sweep import SweepConfig, compose_sweep, make_sweep, numbers
from s6mod.methods import methods
from s6mod.runs.cells import parse
from s6mod.runs.completion import complete
from s6mod.runs.records import export
from s6mod.runs.store import scan

ROOT = Path(__file__).parents[2]


def plan(call, *words):
    code, out, err = call("sweep", *words, "--plan")
    assert code == 0, err
    return out


def test_the_plan_of_the_main_tables_on_an_empty_store(tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    out = plan(call, "--tables", "1,2")
    assert "1,120 results from 960 trainings" in out
    assert "done: 0 results from 0 trainings" in out
    assert re.search(r"about \d\d\d\.\d h on one H200", out)
    assert list(tmp_path.iterdir()) == []  # nothing was started


def test_the_plan_subtracts_what_is_done_and_one_mose_training_is_two_results(tmp_path, monkeypatch, write_run, call):
    monkeypatch.chdir(tmp_path)
    for cell in ("er/cifar10/500", "mose/cifar10/500", "er/digits"):
        export(write_run(tmp_path / "there", cell) / "result.json", tmp_path / "results")
    write_run(tmp_path / "runs", "er/cifar10/500", seed=1)
    write_run(tmp_path / "runs", "er/cifar10/500", seed=2, accuracy=None)  # not finished
    out = plan(call, "--tables", "1,2")
    assert "done: 4 results from 3 trainings" in out
    assert "to run: 1,116 results from 957 trainings" in out


def test_the_plan_subtracts_the_published_records(tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    jobs = {job.config.hash: job for job in make_sweep(SweepConfig(tables=["1"]), [], {}, tmp_path, scan([])).jobs}
    done = [jobs[run.hash] for run in scan([ROOT / "results"]).finished if run.hash in jobs]
    assert done
    out = plan(call, "--tables", "1,2", "--store", ROOT / "results")
    results = sum(2 if job.config.method.name == "mose" else 1 for job in done)  # MOE-MOSE is a second one
    assert f"to run: {1120 - results:,} results from {960 - len(done):,} trainings" in out


def test_controls_are_added_on_request(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # Both controls of every cell, and S6MOD in two other settings on 17 of them, in one on four.
    assert "2,620 results from 2,300 trainings" in plan(call, "--tables", "1", "--controls")


def test_cells_of_one_line_of_the_plan_may_cost_differently(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cells = [f"er+s6mod/cifar100/2000{more}" for more in ("", "/view=shared", "/variant=plus", "/stream.limit=10000")]
    out = plan(call, ",".join(cells), "--seeds", "0")
    assert "1,000-5,000" in out
    ms = [cost(complete(parse(cell).values())).ms for cell in cells]
    assert f"{min(ms):.1f}-{max(ms):.1f}" in out
    assert "partly measured" in out
    assert f"{ms[0]:.1f} " in plan(call, cells[0], "--seeds", "0")


def test_a_file_and_the_command_line_say_the_same(tmp_path):
    file = tmp_path / "grid.yaml"
    file.write_text("cells: [er, er+s6mod]\ndata: digits\nmemory: 50\nseeds: 0-2\nset: {stream: {tasks: 2}}\n")
    by_file = make_sweep(compose_sweep([str(file)], {}), [], {}, tmp_path, scan([]))
    typed = SweepConfig(cells=["er,er+s6mod"], data="digits", memory=50, seeds=[0, 1, 2])
    by_hand = make_sweep(typed, ["stream.tasks=2"], {"engine": {"device": "cpu"}}, tmp_path, scan([]))
    assert [job.folder for job in by_file.jobs] == [job.folder for job in by_hand.jobs]
    assert (by_file.results, by_file.trainings) == (6, 6)
    assert by_file.jobs[0].config.stream.tasks == 2


def test_cells_that_come_to_the_same_run_are_trained_once(tmp_path):
    config = SweepConfig(cells=["er+s6mod/digits,er+s6mod/digits/200/beta=0.5"], seeds="3")
    sweep = make_sweep(config, [], {}, tmp_path, scan([]))
    assert (sweep.results, len(sweep.jobs)) == (2, 1)


def test_a_training_is_not_named_by_what_a_field_of_the_sweep_took_the_place_of(tmp_path):
    config = SweepConfig(cells=["er/digits/200/average=0.9/updates=2", "er/digits/200/average=0.99"], seeds="3")
    sweep = make_sweep(config, ["average=0.5"], {}, tmp_path, scan([]))
    assert [job.name for job in sweep.jobs] == ["er/digits/200/updates=2 seed 3", "er/digits/200 seed 3"]
    partly = 'er/digits/200/method.optimizer={"lr": 0.1, "weight_decay": 0.1}'
    sweep = make_sweep(
        SweepConfig(cells=["er", partly], seeds="3"), ["method.optimizer.lr=0.3"], {}, tmp_path, scan([])
    )
    assert [job.name for job in sweep.jobs] == ["er/digits/200 seed 3", f"{partly} seed 3"]  # the decay is its own


def test_seeds_may_be_ranges_and_lists():
    assert numbers("0-2,7,1") == [0, 1, 2, 7]
    for wrong in ("a", "3-1", "1-", "1" * 5000):
        with pytest.raises(ConfigError, match="expected seeds"):
            numbers(wrong)
    assert len(numbers("0-9999,7")) == 10_000
    for many in ("0-10000", "0-9999,10000", "0-100000000000"):
        with pytest.raises(ConfigError, match="expected at most 10,000 seeds"):
            numbers(many)


def test_a_method_and_a_branch_of_ones_own_make_cells(tmp_path, monkeypatch):
    monkeypatch.setitem(branches._parts, "penalty", branches["confidence"])
    assert parse("duo+penalty").name == "duo+penalty/digits/200"
    [job] = make_sweep(SweepConfig(cells=["duo"], seeds="0"), [], {}, tmp_path, scan([])).jobs
    assert isinstance(job.config.method, DuoConfig)
    assert job.config.method.network.width == 8  # by the preset of its data
    for wrong, near in (("duos", "duo"), ("er+penalt", "penalty")):
        with pytest.raises(ConfigError, match=f"did you mean '{near}'"):
            parse(wrong)


@pytest.mark.parametrize("name", sorted(_table()["methods"]))
def test_a_plan_counts_all_that_a_memory_holds_of_a_method(name):
    method = methods[name](methods.configure(name), (3, 32, 32), 100)
    floats = sum(math.prod(shape) for shape in method.values().values())  # with each image
    small, large = (cost(complete(parse(f"{name}/cifar100/{size}").values())) for size in (2000, 52000))
    expected = 50_000 * (3 * 32 * 32 + 4 * floats) / 2**30
    more = large.memory_gib - small.memory_gib
    assert more == pytest.approx(0 if small.measured else expected)  # what was measured had it


def test_costs_are_measured_or_estimated_and_follow_the_stream():
    er = cost(complete(parse("er/cifar100/2000").values()))
    assert (er.steps, er.measured, er.wants_gpu) == (5000, True, True)
    assert 1 < er.ms < 4
    ocm, tiny = (cost(complete(parse(f"ocm/{data}").values())) for data in ("cifar100", "tiny-imagenet"))
    assert ocm.measured
    assert not tiny.measured
    assert tiny.steps == 10000
    assert tiny.ms > 3.5 * ocm.ms
    shared, fresh, plus = (
        cost(complete(parse(f"er+s6mod/cifar100/2000/{more}").values()))
        for more in ("view=shared", "view=fresh", "variant=plus")
    )
    assert shared.ms < fresh.ms  # a second view
    assert [each.measured for each in (shared, fresh, plus)] == [True, True, False]
    one, two = (cost(complete(parse(f"mose+s6mod/tiny-imagenet/view={view}").values())) for view in ("shared", "fresh"))
    assert two.ms > one.ms + 4 * 0.7 + 1.3  # 74 images of four times the size, for MOSE in a pass of their own
    assert two.memory_gib > one.memory_gib + 4 * 0.17
    pair, branch, view = (
        cost(complete(parse(f"onpro-ccldc{more}").values()))
        for more in ("/cifar100", "+s6mod/cifar100/2000/view=shared", "+s6mod/cifar100/2000/view=fresh")
    )
    assert pair.ms < branch.ms < view.ms  # the last is not measured: what its second view takes comes on top
    narrow = cost(complete(parse("ocm/cifar100/2000/method.network.width=16").values()))
    assert not narrow.measured
    assert narrow.ms < 0.5 * ocm.ms
    assert narrow.memory_gib < 0.5 * ocm.memory_gib
    taught, both, swift, mose, best = (
        cost(complete(parse(f"{name}/cifar100").values()))
        for name in ("er+mkd", "er+s6mod+mkd", "swift", "mose", "best")
    )
    assert er.ms < swift.ms < taught.ms < both.ms
    assert mose.ms < best.ms < 1.5 * mose.ms  # MOSE's pass holds what the teacher wants: only the copy has one
    penalised = cost(complete(parse("er+confidence/cifar100").values()))
    assert penalised == er
    short = cost(complete(parse("er/digits/200/stream.samples_per_task=20").values()))
    assert (short.steps, short.wants_gpu) == (10, False)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["onprow"], "did you mean 'onpro'"),
        (["er/cifar1"], "did you mean 'cifar10'"),
        (["er,scr+s6mod", "--plan"], "expected no branch on method 'scr'"),
        (["gdumb+mkd"], "expected no teacher on method 'gdumb'"),
        (["ocm/digits/200/stream.kind=iid"], "expected a stream that shows boundaries for method 'ocm'"),
        (["er,iid"], "write er/stream.kind=iid"),
        (["--tables", "4"], "known: 1, 2"),
        ([], "er,er+s6mod"),
        (["er", "--set", "memory=3"], "memory_size"),
        (["er", "--seeds", "x"], "expected seeds"),
        (["er", "--seeds", "²"], "expected seeds"),
        (["er", "--seeds", ""], "expected seeds"),
        (["er", "--memory", "0"], "got 0"),
        (["er", "--data", ""], "got ''"),
        (["er/digits/²"], "expected a memory size"),
        (["below.yaml"], "got -1"),
        (["nowhere.yaml"], "nowhere.yaml"),
        (["bad.yaml"], "did you mean 'seeds'"),
        (["er", "--store", "nowhere"], "nowhere"),
        (["er", "--controls"], "expected --controls with --tables"),
        (["er", "--set", "seed=3"], "give --seeds"),
        (["er", "--set", "engine.device=cpu"], "expected the device in --device"),
        (["er", "--set", "engine=cuda"], "give --device"),
        (["er/digits/200/engine.device=cuda", "--plan"], "give --device"),
        (["device.yaml", "--device", "cpu"], "give --device"),
        (["er", "--out", "bad.yaml"], "got the file bad.yaml"),
        (["er", "--device", "gpu"], "got 'gpu'"),
        (["er", "--device", "cuda"], "got a machine without one"),
        (["er/cifar100/2000", "--seeds", "0"], "give --yes"),
        (["er/cifar100", "--yes", "--data-root", "nowhere"], "nowhere"),
    ],
)
def test_mistakes_are_one_sentence_and_start_nothing(tmp_path, monkeypatch, call, words, hint):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    Path("bad.yaml").write_text("cells: [er]\nseds: 0-3\n")
    Path("below.yaml").write_text("cells: [er]\nseeds: [0, -1]\n")
    Path("device.yaml").write_text("cells: [er]\nset: {engine: {device: tpu}}\n")
    code, out, err = call("sweep", *words)
    assert code == 2
    assert hint in err
    assert err.count("\n") == 1
    assert "Traceback" not in out + err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.yaml", "below.yaml", "device.yaml"]


def test_without_a_gpu_it_says_how_long_the_cpu_would_take(tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    _, _, err = call("sweep", "er/cifar100/2000", "--seeds", "0-9")
    assert "got a CPU, which would take about" in err
    assert any(unit in err for unit in ("hours", "days"))


def test_a_study_offers_no_plan_for_it_has_none(tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    code, _, err = call("ablate", "er/cifar100/2000", "--seeds", "0")
    assert (code, "give --yes" in err, "--plan" in err) == (2, True, False)


@pytest.mark.parametrize("words", [["ablate", "er"], ["study", "beta", "er", "--no-run"]])
def test_a_study_takes_its_device_by_the_option_alone(tmp_path, monkeypatch, call, words):
    monkeypatch.chdir(tmp_path)
    code, _, err = call(*words, "--seeds", "0", "--set", "engine.device=cuda")
    assert (code, err.count("\n"), "give --device" in err) == (2, 1, True)
    assert list(tmp_path.iterdir()) == []


def test_a_device_among_the_fields_counts_where_no_other_is_named(tmp_path):
    config = SweepConfig(cells=["er"], seeds="0", set={"engine": {"device": "cpu"}})
    [job] = make_sweep(config, [], {}, tmp_path, scan([])).jobs
    assert job.config.engine.device == "cpu"


def test_a_short_plan_shows_times_that_can_be_read_and_counts_one_as_one(tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    out = plan(call, "er/digits/200", "--seeds", "0", "--set", "stream.limit=20")
    assert "1 result from 1 training\n" in out
    assert "about 1 s on one H200" in out
    assert "about 1 second\n" in out


def test_device_time_is_told_in_a_unit_that_shows_it():
    assert [span(seconds) for seconds in (0.3, 42, 130, 3600, 9000, 3.6e6)] == [
        "1 s", "42 s", "2 min", "60 min", "2.5 h", "1,000.0 h",
    ]  # fmt: skip


def test_a_sweep_with_nothing_left_says_so(capsys):
    with SweepDisplay(Console(), [], [], quiet=False):
        pass
    assert capsys.readouterr().out == "nothing to run: all of it is done\n"

"""Every published cell has a preset that the present classes accept, and torch-free values agree with them."""

import pickle

import pytest

from learners import METHODS
from s6mod.errors import ConfigError
from s6mod.paper.published import ALPHA_STUDY, TABLES, table
from s6mod.paper.tables import Results, filled
from s6mod.runs.cells import parse, parse_all
from s6mod.runs.completion import complete, departures, setting
from s6mod.runs.config import RunConfig
from s6mod.runs.name import run_hash

CELLS = sorted({cell.training for name in TABLES for cell in table(name).cells(controls=True)}, key=lambda c: c.name)


def test_every_cell_of_the_paper_and_its_controls_is_a_whole_configuration_known_without_torch():
    for cell in CELLS:
        config = RunConfig.parse(cell.values())
        assert complete(cell.values()) == config.plain(), cell.name
        assert run_hash(complete(cell.values())) == config.hash, cell.name
        assert cell.name.startswith(config.cell)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_a_small_preset_for_a_cpu(method):
    config = RunConfig.parse(parse(f"{method}+s6mod/digits").values())
    assert (config.method.network.width, config.memory_size) == (8, 200)


@pytest.mark.parametrize("method", METHODS)
def test_every_configuration_can_be_sent_to_another_process(method):
    config = RunConfig.parse(parse(f"{method}+s6mod/digits").values())
    there = pickle.loads(pickle.dumps(config))
    assert there == config
    assert type(there.method) is type(config.method)


def values(name):
    return RunConfig.parse(parse(name).values()).plain()


def test_streams_are_the_published_ones():
    for data, tasks in (("cifar10", 5), ("cifar100", 10), ("tiny-imagenet", 100)):
        for method in METHODS:
            stream = values(f"{method}/{data}")["stream"]
            assert stream["tasks"] == tasks
            assert stream["class_order"] == ("fixed" if method == "mose" else "seeded")


def test_methods_have_their_published_options():
    onpro = values("onpro/cifar10/500")["method"]
    assert (onpro["scale"], onpro["base_rate"], onpro["mixup_probability"]) == (0.5, 0.75, 0.6)
    onpro = values("onpro/tiny-imagenet/2000")["method"]
    assert (onpro["scale"], onpro["base_rate"], onpro["mixup_probability"]) == (1.0, 0.9, 0.2)
    for data, chain in (("cifar100", (3, 15)), ("tiny-imagenet", (1, 11))):
        for method, weight in (("er", 2), ("ocm", 4), ("onpro", 2 if data == "tiny-imagenet" else 1)):
            pair = values(f"{method}-ccldc/{data}")["method"]["collaboration"]
            assert (pair["rand_augment"]["operations"], pair["rand_augment"]["magnitude"]) == chain
            assert pair["kd_weight"] == weight
    ocm, pair = (values(f"{name}/cifar10/500")["method"]["optimizer"] for name in ("ocm", "ocm-ccldc"))
    assert (ocm["betas"], ocm["weight_decay"]) == ([0.9, 0.99], 1e-4)
    assert (pair["betas"], pair["weight_decay"]) == ([0.9, 0.999], 0.0)
    assert values("onpro-ccldc/cifar10/500")["method"]["base_rate"] == 0.75  # what it wraps comes with it
    assert values("mose/tiny-imagenet/2000")["method"]["mean"] == [0.4802, 0.4480, 0.3975]


def test_the_branch_has_the_published_weights_but_on_cifar():
    def weights(name):
        branch = values(name)["branch"]
        return branch["num_patterns"], branch["view"], branch["alpha"], branch["beta"]

    assert weights("er+s6mod/cifar10/500") == (10, "fresh", 1, 0)
    assert weights("er+s6mod/cifar100/5000") == (8, "fresh", 1, 0)
    assert weights("er+s6mod/tiny-imagenet/5000") == (10, "shared", 1, 5)
    assert weights("er+s6mod/tiny-imagenet/10000") == (10, "shared", 0.5, 2.5)
    assert weights("onpro+s6mod/cifar100/2000") == (5, "fresh", 5, 0)
    assert weights("ocm+s6mod/cifar100/2000") == (8, "fresh", 10, 0)
    assert weights("ocm+s6mod/tiny-imagenet/5000") == (10, "shared", 0.2, 10)
    assert weights("ocm-ccldc+s6mod/cifar100/2000") == (8, "fresh", 0.5, 0)
    assert weights("onpro-ccldc+s6mod/cifar100/2000") == (8, "fresh", 0.5, 0)
    assert weights("mose+s6mod/cifar100/2000") == (8, "shared", 1, 0.5)
    assert values("ocm+s6mod/tiny-imagenet/2000")["branch"]["d_inner"] == 256


def test_other_settings_stand_beside_the_preset_and_differ_from_it():
    lines = [line for section in table("1").sections for line in section.lines]
    beside = {line.cell.name: line.label.partition(", ")[2] for line in lines if line.cell.changes}
    assert beside["er+s6mod/cifar100/2000/view=shared/beta=5.0"] == "published weights"
    assert beside["er+s6mod/cifar10/500/view=shared/beta=0.5"] == "shared view"
    assert beside["onpro+s6mod/cifar100/5000/view=shared/divergence=pq/beta=0.5"] == "shared view"
    assert beside["onpro+s6mod/cifar10/500/view=fresh/beta=0.0/divergence=qp"] == "fresh view"
    assert values("ocm-ccldc+s6mod/cifar100/5000/view=shared/beta=25.0")["branch"]["alpha"] == 0.5
    pairs = [name.partition("/")[2] for name in beside if name.startswith("ocm-ccldc+s6mod/cifar100/")]
    assert pairs == [
        *(f"cifar100/{memory}/{changes}" for memory in (1000, 2000)
          for changes in ("view=shared/alpha=5.0/beta=25.0", "alpha=5.0")),
        "cifar100/5000/view=shared/beta=25.0",  # as released, with less of L_Diff
    ]  # fmt: skip
    assert {name.split("/")[1] for name in beside} == {"cifar10", "cifar100"}  # elsewhere presets are as published
    for name, label in beside.items():
        branch = values(name)["branch"]
        assert branch != values("/".join(name.split("/")[:3]))["branch"], name
        assert branch["view"] == ("fresh" if label in ("fresh view", "alpha = 5") else "shared"), name


def test_moe_mose_is_a_result_of_mose():
    cell = parse("moe-mose+s6mod/cifar10/500")
    assert cell.training == parse("mose+s6mod/cifar10/500")
    assert cell.scores == "moe"
    assert cell.base.name == "moe-mose/cifar10/500"
    assert cell.values() == cell.training.values()


def test_a_change_takes_the_place_of_one_to_the_same_field_however_it_is_spelled():
    cell = parse("er+s6mod/digits/50/branch.beta=1.0/stream.tasks=2/alpha=3.0")
    assert cell.but("beta=2.0", "stream.tasks=5").changes == ("alpha=3.0", "beta=2.0", "stream.tasks=5")
    assert cell.but("view=fresh").changes == (*cell.changes, "view=fresh")
    assert cell.but() == cell


def test_a_cell_s_name_says_everything():
    name = "er+s6mod/digits/50/beta=0.5/method.optimizer.lr=0.01"
    assert parse(name).name == name
    config = values(name)
    assert (config["branch"]["beta"], config["method"]["optimizer"]["lr"]) == (0.5, 0.01)
    by_memory = values("er/digits/50/statistics=memory")
    assert (by_memory["statistics"], by_memory["branch"]) == ("memory", None)
    assert parse("er", "cifar100").name == "er/cifar100/2000"
    assert [cell.name for cell in parse_all(["er,er+s6mod", "er"], memory=9)] == ["er/digits/9", "er+s6mod/digits/9"]
    scale = "method.augment.scale=[0.5,1.0]"
    assert [cell.changes for cell in parse_all([f"er/{scale},er,er/{scale}/average=0.9"])] == [
        (scale,), (), (scale, "average=0.9"),
    ]  # fmt: skip
    tasks = "stream.tasks=[[0, 1], [2, 3]]"  # as tables write it
    assert [cell.changes for cell in parse_all([f"er/{tasks},er/{tasks}/average=0.9"])] == [
        (tasks,), (tasks, "average=0.9"),
    ]  # fmt: skip


@pytest.mark.parametrize("method", ["er", "der++"])
def test_a_teacher_stands_behind_the_branch_or_in_its_place(method):
    alone, joined = parse(f"{method}+mkd/digits/50"), parse(f"{method}+s6mod+mkd/digits/50/teacher.weight=2.0")
    assert [(cell.method, cell.branch, cell.teacher) for cell in (alone, joined)] == [
        (method, "none", "mkd"),
        (method, "s6mod", "mkd"),
    ]
    assert joined.name == f"{method}+s6mod+mkd/digits/50/teacher.weight=2.0"
    assert joined.base == alone.base == parse(f"{method}/digits/50")
    plain = values(joined.name)
    assert (plain["teacher"]["weight"], plain["branch"]["name"]) == (2.0, "s6mod")
    assert RunConfig.parse(joined.values()).cell == f"{method}+s6mod+mkd/digits/50"
    assert run_hash(values(alone.name)) != run_hash(values(f"{method}/digits/50"))


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("onpr/cifar10", "did you mean 'onpro'"),
        ("er+s6mode", "did you mean 's6mod'"),
        ("er+mkf", "did you mean 'mkd'"),
        ("er/cifar1000/5", "did you mean 'cifar100'"),
        ("er/cifar10/many", "'many'"),
        ("er/cifar10/500/7", "'7'"),
        ("er/cifar10/500/beta=1", "branch"),
        ("er/cifar10/500/seed=1", "branch"),
    ],
)
def test_a_mistyped_cell_is_one_sentence(name, hint):
    with pytest.raises(ConfigError, match=hint):
        parse(name)


def test_an_old_configuration_is_recognised_though_fields_were_added_since():
    now = complete(parse("er+s6mod/cifar100/2000").values())
    then = {key: value for key, value in now.items() if key != "boundaries"}
    then["branch"] = {key: value for key, value in now["branch"].items() if key != "distance"} | {"gone": None}
    assert run_hash(complete(then)) == run_hash(now)
    then["branch"]["gone"] = 3  # an option of then that meant something
    assert run_hash(complete(then)) != run_hash(now)


def test_a_setting_is_the_same_whatever_the_seed_and_the_engine():
    one = complete(parse("er/digits").values())
    other = one | {"seed": 4, "engine": one["engine"] | {"precision": "float32"}}
    assert setting(one) == setting(other)
    assert run_hash(one) != run_hash(other)
    changed = complete(parse("er/digits/200/method.optimizer.lr=0.01").values())
    assert setting(changed) != setting(one)
    assert departures(changed, one) == ["method.optimizer.lr=0.01"]


def test_the_main_tables_are_1120_results_of_960_trainings():
    cells = {cell for name in ("1", "2") for cell in table(name).cells()}
    assert len(cells) * len(table("1").seeds) == 1120
    assert len({cell.training for cell in cells}) * 10 == 960
    assert {line.paper for s in table("2").sections for line in s.lines if line.cell.name == "er/cifar100/2000"} == {
        (22.20, 2.26)
    }


def test_studies_say_what_they_change():
    lines = {line.label: line.cell for line in table("ablation").sections[0].lines}
    as_printed = ("view=shared", "divergence=pq")
    plain = ("num_patterns=1", "weight_z=0.0")
    assert lines["onpro + branch (with L_Diff)"].changes == (*as_printed, *plain, "beta=0.0")
    assert lines["onpro + branch + routing"].changes == (*as_printed, "beta=0.0")
    assert lines["onpro + s6mod"].changes == (*as_printed, "beta=0.5")
    fixed = {line.cell.changes[3:] for line in table("patterns").sections[0].lines}
    assert {("fixed_patterns=1",), ("fixed_patterns=5",), ("num_patterns=16", "fixed_patterns=16")} <= fixed
    whole = setting(complete(parse(ALPHA_STUDY).values()))
    published = {line.label: line.cell for section in table("sensitivity").sections for line in section.lines}
    assert setting(complete(published["alpha = 5"].values())) == whole
    assert setting(complete(published["beta = 25"].values())) == whole
    with pytest.raises(ConfigError, match="did you mean 'ablation'"):
        table("ablations")
    with pytest.raises(ConfigError, match="did you mean 'all'"):
        filled("alll", Results([]))

import json

import pytest

from s6mod.paper.predictors import compared, lines
from s6mod.runs.store import scan

ER, OURS = "er/cifar100/2000", "er+s6mod/cifar100/2000"
USUAL, BEST, OWN = "latest/running/head", "averaged/memory/head", "latest/running/branch"


@pytest.fixture
def write(tmp_path, write_run):
    def write(cell, seed, predictors, **options):
        file = write_run(tmp_path, cell, seed=seed, **options) / "result.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"predictors": predictors}, indent=1))

    return write


def test_a_cell_has_the_mean_over_seeds_of_each_combination(tmp_path, write, write_run):
    write(ER, 0, {USUAL: [30.0, 32.0], BEST: [40.0, 42.0]})
    write(ER, 1, {USUAL: [33.0, 33.0], BEST: [40.0, 40.0]})
    write(OURS, 0, {USUAL: [34.0, 34.0], OWN: [20.0, 20.0]})
    write_run(tmp_path, ER, seed=2)  # an older run, which scored only what predicts
    found = compared(scan([tmp_path]).finished)
    ours, base = f"{OURS} bfloat16", f"{ER} bfloat16"
    assert list(found) == [ours, base]  # in the order of the store
    assert (found[base]["head"]["latest", "running"].mean, found[base]["head"]["latest", "running"].n) == (32.0, 2)
    assert found[ours]["branch"]["latest", "running"].mean == 20.0
    assert [" ".join(line.split()) for line in lines(found)] == [
        f"{ours}, 1 seed", "latest/running", "head 34.00*", "branch 20.00", "",
        f"{base}, 2 seeds", "latest/running averaged/memory", "head 32.00±1.41 40.50±0.71*", "",
    ]  # fmt: skip


def test_an_entry_of_fewer_seeds_says_so(tmp_path, write):
    write(ER, 0, {USUAL: [30.0], BEST: [40.0]})
    write(ER, 1, {USUAL: [32.0]})
    assert "40.00 n=1*" in "\n".join(lines(compared(scan([tmp_path]).finished)))


def test_precisions_and_settings_are_tables_of_their_own(tmp_path, write):
    write(ER, 0, {USUAL: [30.0]})
    write(ER, 0, {USUAL: [31.0]}, precision="float32")
    write(f"{ER}/average=0.98", 0, {USUAL: [32.0]})
    found = compared(scan([tmp_path]).finished)
    assert sorted(table["head"]["latest", "running"].mean for table in found.values()) == [30.0, 31.0, 32.0]

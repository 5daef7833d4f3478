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


def test_a_combination_has_its_mean_over_seeds_in_each_cell_best_first(tmp_path, write, write_run):
    write(ER, 0, {USUAL: [30.0, 32.0], BEST: [40.0, 42.0]})
    write(ER, 1, {USUAL: [33.0, 33.0], BEST: [40.0, 40.0]})
    write(OURS, 0, {USUAL: [34.0, 34.0], OWN: [20.0, 20.0]})
    write_run(tmp_path, ER, seed=2)  # an older run, which scored only what predicts
    table = compared(scan([tmp_path]).finished)
    assert [cell.split()[0] for cell in table.cells] == [OURS, ER]  # in the order of the store
    assert list(table.rows) == [BEST, USUAL, OWN]
    ours, base = table.rows[USUAL]
    assert (ours.mean, ours.n, base.mean, base.n) == (34.0, 1, 32.0, 2)
    assert table.rows[BEST][0] is None
    head, best, *_, ours, base = lines(table)
    assert head.split() == ["weights", "statistics", "scores", "(1)", "(2)"]
    assert best.split() == ["averaged", "memory", "head", "40.50±0.71", "n=2"]
    assert (ours, base) == (f"(1) {OURS} bfloat16", f"(2) {ER} bfloat16")


def test_precisions_and_settings_are_columns_of_their_own(tmp_path, write):
    write(ER, 0, {USUAL: [30.0]})
    write(ER, 0, {USUAL: [31.0]}, precision="float32")
    write(f"{ER}/average=0.98", 0, {USUAL: [32.0]})
    [estimates] = compared(scan([tmp_path]).finished).rows.values()
    assert sorted((each.mean, each.n) for each in estimates) == [(30.0, 1), (31.0, 1), (32.0, 1)]

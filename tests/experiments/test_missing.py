"""What the paper's table still lacks, in words and runs."""

from s6mod.experiments.missing import missing
from s6mod.paper.tables import Results
from s6mod.runs.store import scan


def test_a_cell_with_three_seeds_is_there_and_others_tell_what_they_lack_and_cost(tmp_path, write_run):
    for seed in range(3):
        write_run(tmp_path, "er/cifar10/500", seed=seed)
    write_run(tmp_path, "mose/cifar10/500", seed=0)
    text = missing(Results(scan([tmp_path]).finished))
    assert text.startswith("## What is missing\n\n1 of the 112 accuracy cells of the paper have 3 seeds or more.")
    head, _, *rows = text.splitlines()[4:]
    columns = [part.strip() for part in head.split("|")[1:-1]]
    table = {cells[0]: dict(zip(columns, cells, strict=True)) for row in rows if (cells := split(row))}
    assert table["er"]["cifar10, 500"] == ""
    assert table["er"]["cifar10, 1000"].startswith("3 x ")
    assert table["mose"]["cifar10, 500"].startswith("2 x ")
    assert "moe-mose" not in table  # it is another reading of the same runs
    lacking = sum(int(entry.split()[0]) for row in table.values() for entry in list(row.values())[1:] if entry)
    assert f"The others lack {lacking} runs" in text


def split(row):
    return [part.strip() for part in row.split("|")[1:-1]]

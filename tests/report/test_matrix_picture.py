import re
from itertools import pairwise

from s6mod.report.matrix_picture import plot_matrices


def test_the_numbers_of_twenty_tasks_keep_apart(tmp_path):
    matrix = [[50.0] * (task + 1) for task in range(20)]
    plot_matrices({"er": matrix, "er+s6mod": matrix}, "Accuracy").savefig(tmp_path / "matrices.svg")
    drawn = re.findall(r"<!-- (\d+) -->\s+<g[^>]*translate\((\S+) (\S+)\)", (tmp_path / "matrices.svg").read_text())
    lowest = max(float(y) for _, _, y in drawn)
    below = sorted(float(x) for _, x, y in drawn if float(y) == lowest)
    assert len(below) >= 10
    assert min(after - before for before, after in pairwise(below)) > 13  # two digits of ten points

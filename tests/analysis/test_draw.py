import re

import numpy as np
import pytest

from s6mod.analysis.draw import band, canvas, legend_below, name_ticks, number_from_one


def test_no_text_of_an_svg_lies_below_its_edge():
    with canvas(1, 2, 3.0, sharey=True) as panel:
        for axis in panel.axes[0]:
            image = axis.imshow(np.eye(10))
            panel.figure.colorbar(image, ax=axis, label="distance", location="top", shrink=0.9)
            axis.set_xticks(range(10), "0123456789", rotation=90)
            axis.set_xlabel("class")
        svg = panel.done("name", "title", "alt", "csv").svg
    [height] = re.findall(r'viewBox="0 0 \S+ (\S+)"', svg)
    baselines = dict(re.findall(r"<!-- (.+?) -->\s+<g[^>]*translate\(\S+ ([\d.]+)\)", svg))
    assert {"class", "distance"} < baselines.keys()
    assert all(0 < float(y) < float(height) - 2 for y in baselines.values())


def test_the_spread_of_a_single_point_is_seen_too():
    with canvas(1, 1, 2.0) as panel:
        [[axis]] = panel.axes
        band(axis, [3], [[20.0, 30.0]], "seeds", 0)
        [segment] = axis.collections[0].get_segments()
    assert segment[:, 1].tolist() == pytest.approx([25 - 50**0.5, 25 + 50**0.5])


@pytest.mark.parametrize(("size", "told"), [(4, [1, 2, 3, 4]), (21, [5, 10, 15, 20]), (200, [50, 100, 150, 200])])
def test_rows_are_counted_from_one_in_round_numbers(size, told):
    with canvas(1, 1, 2.0) as panel:
        [[axis]] = panel.axes
        axis.imshow(np.zeros((size, size)))
        number_from_one(axis.yaxis, size)
        assert axis.get_yticks().tolist() == [number - 1 for number in told]
        assert [label.get_text() for label in axis.get_yticklabels()] == [str(number) for number in told]


def test_names_are_not_read_as_formulas():
    with canvas(1, 1, 2.0) as panel:
        name_ticks(panel.axes[0, 0].yaxis, ["$1 and $2", r"$\frac{x$"])
        svg = panel.done("name", "title", "alt", "csv").svg
    assert "<!-- $1 and $2 -->" in svg


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["cat", "a" * 60], ["cat", "a" * 13 + "…"]),
        (["golden retriever, male", "golden retriever, female"], ["1", "2"]),
    ],
)
def test_long_names_beside_a_matrix_are_cut_and_those_that_then_look_alike_are_numbered(names, told):
    with canvas(1, 1, 2.0) as panel:
        [[axis]] = panel.axes
        name_ticks(axis.yaxis, names)
        assert [label.get_text() for label in axis.get_yticklabels()] == told


def test_a_legend_of_long_names_stays_inside_the_figure():
    with canvas(1, 2, 3.0) as panel:
        for number in range(6):
            panel.axes[0, 0].plot([0], [0], label=f"a rather long name of class {number}")
        legend_below(panel, 5)
        panel.done("name", "title", "alt", "csv")
        [legend] = panel.figure.legends
        box = legend.get_window_extent()
        assert 0 <= box.x0 < box.x1 <= panel.figure.bbox.width
        assert len(legend.get_texts()) == 6

import csv
import io
import re
from xml.etree import ElementTree

import pytest

from s6mod.report.charts import Dots, Series, dots, heat_map, lines, ticks

HOSTILE = '</svg><script>alert("1")</script>&'


def drawn(figure):
    """The chart as XML: it must be whole."""
    return ElementTree.fromstring(figure.svg)


def table(figure):
    return list(csv.reader(io.StringIO(figure.csv)))


def texts(figure):
    return [element.text for element in drawn(figure).iter("{http://www.w3.org/2000/svg}text")]


def test_a_line_chart_has_its_data_in_csv_and_in_words():
    figure = lines("a", "Title", [Series("er", [1, 2], [10.5, 20.25], low=[9, 19], high=[12, 22])], "task", "acc (%)")
    assert table(figure) == [
        ["series", "run", "task", "acc (%)", "low", "high"],
        ["er", "", "1", "10.5", "9", "12"],
        ["er", "", "2", "20.25", "19", "22"],
    ]
    assert figure.alt == "Line chart of acc (%) against task. er: 10.5 at 1, 20.2 at 2."
    assert {"task", "acc (%)", "er"} <= set(texts(figure))


def test_a_missing_value_is_a_gap_and_no_number():
    figure = lines("a", "Title", [Series("er", [1, 2, 3, 4], [1.0, 2.0, None, 3.0], 2)], "x", "y")
    [path] = [p.get("d") for p in drawn(figure).iter() if p.get("class") == "c2" and "L" in p.get("d", "")]
    assert path.count("M") == 2
    assert table(figure)[3] == ["er", "", "3", "", "", ""]


@pytest.mark.parametrize(
    "figure",
    [
        lines("a", HOSTILE, [Series(HOSTILE, [1, 2], [1.0, 1.0])], HOSTILE, HOSTILE),
        lines("a", "one point", [Series("er", [3], [7.0])], "x", "y"),
        lines("a", "nothing known", [Series("er", [1, 2], [None, 5.0]), Series("b", [1], [None])], "x", "y"),
        heat_map("a", HOSTILE, [[1.0]], [HOSTILE], [HOSTILE], HOSTILE, HOSTILE, HOSTILE, 100),
        heat_map("a", "empty", [[None, None]], ["r"], ["c", "d"], "x", "y", "%", 0),
        dots("a", HOSTILE, [Dots(HOSTILE, [1.0], 1.0)], HOSTILE),
    ],
)
def test_any_text_and_any_values_give_whole_xml_without_foreign_elements(figure):
    kinds = {element.tag.rpartition("}")[2] for element in drawn(figure).iter()}
    assert kinds <= {"svg", "title", "desc", "text", "path", "rect", "circle", "g"}
    assert drawn(figure).get("role") == "img"
    assert "nan" not in figure.svg


@pytest.mark.parametrize("faint", [False, True])
@pytest.mark.parametrize("size", [3, 40])
def test_the_tiles_of_a_heat_map_cover_each_known_cell_once(size, faint):
    cells = [[None if (i + j) % 5 == 0 else float(10 * (i % 10)) for j in range(size)] for i in range(size)]
    names = [str(k) for k in range(size)]
    figure = heat_map("a", "t", cells, names, names, "x", "y", "%", 100, faint=faint)
    covered = {}
    for path in drawn(figure).iter("{http://www.w3.org/2000/svg}path"):
        for x, y, width in re.findall(r"M(\d+) (\d+)h(\d+)v1h-\d+z", path.get("d")):
            for column in range(int(x), int(x) + int(width)):
                assert (int(y), column) not in covered
                covered[int(y), column] = path.get("fill"), path.get("fill-opacity")
    known = {(i, j) for i in range(size) for j in range(size) if cells[i][j] is not None}
    assert covered.keys() == known
    assert len({covered[place] for place in known}) == len({cells[i][j] for i, j in known})  # a colour for each value
    assert [row[1:] for row in table(figure)[1:]] == [[f"{v:g}" if v is not None else "" for v in row] for row in cells]


def test_a_dot_chart_tells_mean_interval_and_the_published_figure():
    figure = dots("a", "Acc", [Dots("er", [31.0, 33.0], 32.0, 12.7, 31.9)], "%")
    assert "er: mean 32 ± 12.7, paper 31.9" in figure.alt
    assert sum(element.tag.endswith("circle") for element in drawn(figure).iter()) == 2


def test_an_interval_is_not_drawn_beyond_a_percentage():
    figure = dots("a", "Acc", [Dots("er", [80.0, 99.0], 89.5, 120.0)], "%")
    assert {"0", "100"} <= set(texts(figure))
    assert max(float(text) for text in texts(figure) if text.isdigit()) == 100


TICKS = [
    (0, 100, [0, 20, 40, 60, 80, 100]),
    (1, 5, [1, 2, 3, 4, 5]),
    (1, 2, [1, 2]),
    (0.2, 0.41, [0.2, 0.25, 0.3, 0.35, 0.4]),
    (7, 7, [7]),
]


@pytest.mark.parametrize(("low", "high", "expected"), TICKS)
def test_ticks_are_round(low, high, expected):
    assert ticks(low, high, 5) == pytest.approx(expected)

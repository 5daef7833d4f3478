import csv
import io
import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from s6mod.report.charts import Dots, Series, dots, heat_map, lines, ticks
from s6mod.report.svg import LEVELS, short, span

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


def test_a_point_between_gaps_is_marked():
    alone = lines("a", "t", [Series("er", [1, 2, 3], [2.0, None, None], note="seed 0")], "x", "y")
    joined = lines("a", "t", [Series("er", [1, 2, 3], [2.0, 3.0, None], note="seed 0")], "x", "y")
    assert alone.svg.count('class="f0"') == 2  # the point, and the legend that tells of it
    assert joined.svg.count('class="f0"') == 0


def test_the_legend_shows_markers_where_lines_have_them():
    few, many = ([float(x) for x in range(n)] for n in (5, 60))
    assert lines("a", "t", [Series("er", few, few)], "x", "y").svg.count('class="f0"') == 5 + 1
    assert lines("a", "t", [Series("er", many, many)], "x", "y").svg.count('class="f0"') == 0
    thin = [Series("er", few, few, note="seed 0"), Series("mir", few, few, colour=1)]
    assert [lines("a", "t", thin, "x", "y").svg.count(f'class="f{colour}"') for colour in (0, 1)] == [0, 5 + 1]


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
    """Where it is faint, 0 is blank, and a number all the same."""
    cells = [[None if (i + j) % 5 == 0 else float(10 * (i % 10)) for j in range(size)] for i in range(size)]
    names = [str(k) for k in range(size)]
    figure = heat_map("a", "t", cells, names, names, "x", "y", "%", 100, faint=faint)
    covered = {}
    for path in drawn(figure).iter("{http://www.w3.org/2000/svg}path"):
        for x, y, width in re.findall(r"M(\d+) (\d+)h(\d+)v1h-\d+z", path.get("d")):
            for column in range(int(x), int(x) + int(width)):
                assert (int(y), column) not in covered
                covered[int(y), column] = path.get("fill"), path.get("fill-opacity")
    blank = (None, 0) if faint else (None,)
    known = {(i, j) for i in range(size) for j in range(size) if cells[i][j] not in blank}
    assert covered.keys() == known
    assert len({covered[place] for place in known}) == len({cells[i][j] for i, j in known})  # a colour for each value
    assert [row[1:] for row in table(figure)[1:]] == [[f"{v:g}" if v is not None else "" for v in row] for row in cells]


def upright(figure):
    """Where texts that were turned begin and how far down their last letter is, about."""
    return [
        (element.text, float(element.get("y")) + 7 * len(element.text))
        for element in drawn(figure).iter("{http://www.w3.org/2000/svg}text")
        if element.get("transform") and element.get("text-anchor") == "end"
    ]


def height(figure):
    return float(drawn(figure).get("viewBox").split()[3])


def test_every_column_of_a_heat_map_has_its_name_inside_the_picture():
    names = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    figure = heat_map("a", "t", [[1.0] * 10] * 10, names, names, "taken for", "class", "%", 100)
    assert [name for name, _ in upright(figure)] == names
    [x_label] = [e for e in drawn(figure).iter("{http://www.w3.org/2000/svg}text") if e.text == "taken for"]
    assert max(end for _, end in upright(figure)) < float(x_label.get("y")) - 9 < height(figure)


@pytest.mark.parametrize("square", [True, False])
def test_names_that_have_no_room_give_way_to_round_numbers_that_keep_apart(square):
    names = [f"a long name of class {k}" for k in range(200)]
    columns = names if square else [str(k) for k in range(50)]
    figure = heat_map("a", "t", [[1.0] * len(columns)] * 200, names, columns, "x", "class", "%", 100, square=square)
    shown = [e for e in drawn(figure).iter("{http://www.w3.org/2000/svg}text") if e.text.isdigit()]
    beside = [e for e in shown if e.get("text-anchor") == "end" and e.text != "0"]
    assert [e.text for e in beside] == [str(10 * k) for k in range(1, 21)]
    below = [e for e in shown if e.get("text-anchor") == "middle"]
    for texts, axis, room in ((beside, "y", 12), (below, "x", 7 * 3)):
        places = [float(e.get(axis)) for e in texts]
        assert min(after - before for before, after in pairwise(places)) >= room
    assert height(figure) < 500
    assert [row[0] for row in table(figure)[1:]] == names  # the data has them


def test_names_that_look_alike_once_cut_give_way_to_numbers():
    names = ["golden retriever, male", "golden retriever, female", "cat"]
    figure = heat_map("a", "t", [[1.0] * 3] * 3, names, names, "taken for", "class", "%", 100, faint=True)
    assert texts(figure).count("2") == 2  # below and beside
    assert "cat" not in texts(figure)
    assert table(figure)[0][1:] == names


@pytest.mark.parametrize(("columns", "shown"), [(5, True), (12, False)])
def test_numbers_stand_on_tiles_only_where_they_have_room(columns, shown):
    """Beside long names twelve tiles are narrower than a number of four letters."""
    names = [f"{number} and a long name" for number in range(3)]
    across = [str(step) for step in range(columns)]
    figure = heat_map("a", "t", [[0.93] * columns] * 3, names, across, "x", "class", "", 1.0, square=False)
    assert ("0.93" in texts(figure)) == shown


def test_names_in_wide_letters_are_cut_where_they_take_the_room_of_narrow_ones():
    assert short("日本語" * 9, 16) == "日本語日本語日…"
    assert short("a" * 16, 16) == "a" * 16
    assert short("a" * 17, 16) == "a" * 15 + "…"


@pytest.mark.parametrize("square", [True, False])
def test_a_heat_map_of_few_rows_is_high_enough_for_the_name_beside_it(square):
    figure = heat_map("a", "t", [[1.0]], ["r"], ["c"], "x", "class, in order of arrival", "", 1, square=square)
    [label] = [e for e in drawn(figure).iter("{http://www.w3.org/2000/svg}text") if e.text.startswith("class")]
    half = 7 * len(label.text) / 2
    assert half < float(label.get("y")) < height(figure) - half


def test_numbers_beside_an_axis_keep_off_its_name():
    figure = lines("a", "t", [Series("er", [1, 2], [-0.0265, -0.0225])], "x", "y")
    beside = [e for e in drawn(figure).iter("{http://www.w3.org/2000/svg}text") if e.get("text-anchor") == "end"]
    assert max(len(e.text) for e in beside) >= 6
    assert min(float(e.get("x")) - 7 * len(e.text) for e in beside) > 17  # where the letters of the name end


def test_a_legend_shows_the_dashes_of_a_series_on_both_sides_of_its_mark():
    figure = lines("a", "t", [Series("er", [1, 2], [1.0, 2.0], 7)], "x", "y")
    [sample] = [e.get("d") for e in drawn(figure).iter() if e.get("stroke-dasharray") and "h" in e.get("d")]
    assert float(sample.partition("h")[2]) >= 8 + 2 * 6 + 3  # the mark, two dashes, a gap


@pytest.mark.parametrize("draw", ["lines", "dots"])
def test_a_long_label_is_wrapped_and_never_cut(draw):
    """What tells it from others may stand at its end."""
    label = "er+s6mod (beta=0.5, fixed_patterns=null, num_patterns=8, weight_z=1.0)"
    if draw == "lines":
        figure = lines("a", "t", [Series(label, [1, 2], [1.0, 2.0]), Series("er", [1], [1.0], 1)], "x", "y")
    else:
        figure = dots("a", "t", [Dots(label, [1.0], 1.0), Dots("er", [2.0], 2.0, colour=1)], "%")
    rows = [e for e in drawn(figure).iter("{http://www.w3.org/2000/svg}text") if e.get("text-anchor") == "start"]
    rows.sort(key=lambda e: (float(e.get("y")), float(e.get("x"))))
    assert " ".join(e.text for e in rows) == f"{label} er"
    assert max(float(e.get("x")) + 7 * len(e.text) for e in rows) <= 400


def test_numbers_on_tiles_stand_out():
    """In a contrast of 4.5, as WCAG asks."""

    def light(colour):
        parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
        red, green, blue = (p / 12.92 if p <= 0.04 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    for level in range(LEVELS):
        figure = heat_map("a", "t", [[(level + 0.5) / LEVELS]], ["r"], ["c"], "x", "y", "", 1)
        [tile] = [e.get("fill") for e in drawn(figure).iter() if e.get("d") == "M0 0h1v1h-1z"]
        [ink] = [e.get("fill") for e in drawn(figure).iter() if e.text == f"{(level + 0.5) / LEVELS:.2f}"]
        ink = "#" + "".join(2 * letter for letter in ink[1:])
        low, high = sorted((light(tile), light(ink)))
        assert (high + 0.05) / (low + 0.05) >= 4.5, level


def test_a_dot_chart_does_not_blow_up_a_small_difference():
    figure = dots("a", "N-Acc", [Dots("a", [70.56], 70.56), Dots("b", [70.82], 70.82)], "%")
    bars = [float(e.get("d")[1:].split()[0]) for e in drawn(figure).iter() if e.get("d", "").endswith("v16")]
    assert 0 < bars[1] - bars[0] < 30  # of 400


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


@pytest.mark.parametrize(
    "ys",
    [
        [1e20, 1e20], [1e20, 1e20 + 2**14], [1.7e308, 2.0], [1.7e308, -1.7e308], [1.7e308, 1.7e308], [5e-324, 0.0],
        [1e-300, 2e-300], [-1e16], [0.0], [1.0, 1.0 + 2**-52], [None, 1e38, 3e38],
    ],
)  # fmt: skip
def test_values_of_any_size_as_a_run_that_diverged_has_them_are_drawn_within_the_plot(ys):
    figure = lines("a", "t", [Series("er", range(len(ys)), ys, note="seed 0")], "x", "y")
    across = [float(y) for y in re.findall(r"[ML]-?[\d.]+ (-?[\d.]+)", figure.svg)]
    assert all(0 <= y <= 300 for y in across)
    assert all(len(text) < 40 for text in texts(figure) if text)
    assert [row[3] for row in table(figure)[1:]] == ["" if y is None else f"{y:.6g}" for y in ys]


FINITE = st.floats(allow_nan=False, allow_infinity=False)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.none() | FINITE, min_size=1, max_size=6).filter(any))
def test_any_finite_numbers_can_be_drawn_as_lines_and_as_tiles(values):
    drawn(lines("a", "t", [Series("er", range(len(values)), values)], "x", "y"))
    top = max((value for value in values if value is not None), default=0.0) or 1.0
    names = [str(number) for number in range(len(values))]
    drawn(heat_map("a", "t", [values], ["row"], names, "x", "y", "", top, square=False))


@settings(max_examples=200, deadline=None)
@given(FINITE, FINITE)
def test_ticks_are_few_whatever_they_cover(low, high):
    low, high = span([low, high])
    assert 1 <= len(ticks(low, high, 5)) <= 20

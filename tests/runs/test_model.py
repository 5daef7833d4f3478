"""Answers for image files, by learners in folders; exported files are tested with the extra."""

import csv
import io
import json

import numpy as np
import pytest
from PIL import Image

from learners import run, small
from s6mod import Learner
from s6mod.data.images import read_image
from s6mod.errors import DataError, InputError
from s6mod.runs.model import BATCH, files_of, open_model


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A saved learner, and images: one of its size, a large grey one, one that is broken, and a file that is none."""
    folder = tmp_path_factory.mktemp("place")
    run(small("er", predict_among="seen"), 0, 2).save(folder / "learner")
    random = np.random.default_rng(0)
    (folder / "images" / "more").mkdir(parents=True)
    Image.fromarray(random.integers(256, size=(8, 8, 3), dtype=np.uint8)).save(folder / "images" / "b.png")
    Image.fromarray(random.integers(256, size=(30, 20), dtype=np.uint8)).save(folder / "images" / "more" / "a.png")
    (folder / "images" / "notes.txt").write_text("no image")
    (folder / "bad.png").write_bytes(b"no image either")
    return folder


def test_files_get_the_probabilities_that_the_learner_gives_their_resized_pixels(place):
    files, skipped = files_of([place / "images"]), []
    assert [file.name for file in files] == ["b.png", "a.png"]
    found = dict(open_model(place / "learner").of_files(files, skipped))
    pixels = np.stack([read_image(file, (8, 8), "") for file in files])
    expected = Learner.load(place / "learner").predict_proba(pixels)
    assert (np.stack([found[file] for file in files]) == expected).all()
    assert skipped == []


def test_more_files_than_are_held_at_once_are_all_answered_in_order(place):
    file = place / "images" / "b.png"
    found = [name for name, _ in open_model(place / "learner").of_files([file] * (BATCH + 1), [])]
    assert found == [file] * (BATCH + 1)


@pytest.fixture
def finished(place, tmp_path):
    """A folder of a finished run, as far as names are read from it."""

    def make(names):
        Learner.load(place / "learner").save(tmp_path / "run" / "checkpoint")
        parts = dict.fromkeys(("cell", "seed", "primary", "metrics", "matrices", "steps", "ms_per_step"))
        (tmp_path / "run" / "result.json").write_text(json.dumps(parts | {"class_names": names}))
        return tmp_path / "run"

    return make


def test_the_names_of_a_run_are_its_data_sets_and_otherwise_numbers(place, finished):
    assert open_model(finished(list("abcdef"))).classes == tuple("abcdef")
    for names in (["a"], [1, 2, 3, 4, 5, 6], "abcdef"):
        assert open_model(finished(names)).classes == tuple("012345")
    assert open_model(place / "learner").classes == tuple("012345")


def test_what_cannot_predict_is_told(place, tmp_path):
    small("er").save(tmp_path / "new")
    with pytest.raises(InputError, match="learn first"):
        open_model(tmp_path / "new")
    with pytest.raises(InputError, match=r"got no file .*nothing\.onnx; check the path"):
        open_model(tmp_path / "nothing.onnx")
    for missing, empty in ((place / "nowhere", False), (tmp_path / "new", True)):
        with pytest.raises(DataError, match="got none" if empty else "got no "):
            files_of([missing])


def test_a_file_that_could_run_code_is_refused_unread(place, call, monkeypatch):
    file = place / "model.pt2"
    file.write_bytes(b"PK")
    monkeypatch.setattr("torch.export.load", pytest.fail)
    code, out, err = call("predict", file, place / "images")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "got " + str(file) in err
    assert "export to .onnx" in err


def test_predict_prints_a_table_csv_or_json(place, call):
    images = place / "images"
    code, out, _ = call("predict", place / "learner", images)
    head, *rows = out.splitlines()
    assert (code, head.split()) == (0, ["file", "label", "probability"])
    assert [row.split()[0] for row in rows] == [str(images / "b.png"), str(images / "more" / "a.png")]

    code, out, _ = call("predict", place / "learner", images, "--format=json", "--top=9")
    for row in (answers := json.loads(out)):
        shares = [each["probability"] for each in row["labels"]]
        assert len(shares) == 6
        assert shares == sorted(shares, reverse=True)
        assert sum(shares) == pytest.approx(1, abs=1e-5)
        assert {each["label"] for each in row["labels"][:2]} == {"0", "1"}  # the classes seen

    assert call("predict", place / "learner", images, "--json", "--top=9")[1] == out

    code, out, _ = call("predict", place / "learner", images, "--format=csv", "--top=2")
    head, *rows = csv.reader(io.StringIO(out))
    assert head == ["file", "label", "probability", "label", "probability"]
    assert [[row[0], row[1], float(row[2])] for row in rows] == [
        [answer["file"], *answer["labels"][0].values()] for answer in answers
    ]


def test_predict_passes_over_what_is_broken_says_so_and_ends_with_1(place, call):
    code, out, err = call("predict", place / "learner", place / "bad.png", place / "images" / "b.png")
    assert code == 1
    assert len(out.splitlines()) == 2
    assert "bad.png" in err
    assert err.strip().endswith("it was passed over")


def test_predict_shows_no_name_that_would_command_a_terminal(finished, place, call):
    name = "\x1b[2Ja"
    code, out, _ = call("predict", finished([name, *"bcdef"]), place / "images" / "b.png", "--top=6")
    assert (code, "\x1b" in out, "\\x1b[2Ja" in out) == (0, False, True)

"""``s6mod data`` and ``s6mod train --data`` on data in real layouts, small."""

import functools
import gzip
import hashlib
import http.server
import json
import os
import pickle
import shutil
import signal
import tarfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from s6mod.data import prepared
from s6mod.data.acquire import acquire_official
from s6mod.data.download import Download
from s6mod.data.official import OFFICIAL
from s6mod.data.prepared import read_prepared

pytestmark = pytest.mark.filterwarnings("always:read the original files")  # advice, meant for people
QUICK = ["--set=method.network.width=4", "--set=stream.tasks=2", "--memory=10", "--quiet"]


@pytest.fixture
def s6mod(monkeypatch, call, tmp_path):
    """``call`` in an empty folder of its own."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("S6MOD_DATA", str(tmp_path / "root"))
    return call


@pytest.fixture
def root(tmp_path):
    return tmp_path / "root"


@pytest.fixture
def photos(tmp_path):
    rng = np.random.default_rng(0)
    for name in ("ant", "bee", "cow"):
        for number in range(5):
            path = tmp_path / "my photos" / name / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(path)
    return tmp_path / "my photos"


@pytest.fixture
def cifar(tmp_path):
    """The official CIFAR-10 archive in small, and its folder."""
    folder = tmp_path / "official" / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for name in (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"):
        values = {"data": rng.integers(0, 256, (10, 3072), dtype=np.uint8), "labels": list(range(10))}
        (folder / name).write_bytes(pickle.dumps(values))
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": [f"class{k}" for k in range(10)]}))
    archive = tmp_path / "cifar-10-python.tar.gz"
    with tarfile.open(archive, "w:gz") as opened:
        opened.add(folder, "cifar-10-batches-py")
    return archive


@pytest.fixture
def web(tmp_path):
    """A server of the files in tmp_path; its address."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path)
    handler.log_message = lambda *_: None
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def rows(out):
    return {line.split()[0]: line for line in out.splitlines() if line.split()}


def test_alone_it_lists_what_is_known_and_what_is_there(s6mod, root, photos, cifar):
    code, out, _ = s6mod("data")
    assert code == 0
    assert "built in" in rows(out)["digits"]
    for name in OFFICIAL:
        assert "not here" in rows(out)[name]
    assert "s6mod data NAME gets it" in out
    assert not root.exists()
    s6mod("data", photos)
    shutil.copytree(cifar.parent / "official" / "cifar-10-batches-py", root / "cifar-10-batches-py")
    (root / "broken.safetensors").write_bytes(b"x")
    _, out, _ = s6mod("data")
    assert str(root) in out
    assert rows(out)["my-photos"].split() == ["my-photos", "prepared", "3", "12", "+", "3", "3x16x16", "0.012"]
    assert "official files" in rows(out)["cifar10"]
    assert "damaged" in rows(out)["broken"]


def test_a_folder_is_trained_on_by_its_path_or_its_name(s6mod, root, photos):
    code, _, err = s6mod("train", "--data", photos, *QUICK, "--out", "by-path")
    assert code == 0, err
    assert "s6mod data" in err  # says how to prepare it
    code, out, err = s6mod("data", photos, "--name", "insects")
    assert code == 0, err
    assert f"{root / 'insects.safetensors'}" in out
    assert "s6mod train --data insects" in out
    code, _, err = s6mod("train", "--data", "insects", *QUICK, "--out", "by-name")
    assert (code, err) == (0, "")
    by_path, by_name = (json.loads(Path(run, "result.json").read_text()) for run in ("by-path", "by-name"))
    assert by_path["class_names"] == by_name["class_names"] == ["ant", "bee", "cow"]
    assert by_path["data"] == by_name["data"]
    assert by_path["matrices"] == by_name["matrices"]
    assert (by_path["cell"], by_name["cell"]) == ("er/my-photos/10", "er/insects/10")
    elsewhere = photos.with_name("moved")
    photos.rename(elsewhere)
    code, _, err = s6mod("train", "--resume", "by-path", "--data-root", elsewhere)
    assert code == 0, err


def test_the_hash_of_a_run_does_not_know_where_the_data_lies(s6mod, photos):
    def folder_name(*arguments):
        from s6mod.runs.config import RunConfig

        code, out, err = s6mod("train", *arguments, "--show-config")
        assert code == 0, err
        import yaml

        return RunConfig.parse(yaml.safe_load(out)).folder_name

    assert folder_name("--data", "/one/photos") == folder_name("--data", "./photos")
    assert folder_name("--data", "./photos.npz") == folder_name("--data", "photos.csv")  # of one name: see `data`
    assert folder_name("--data", "./photos") != folder_name("--data", "./photos", "--set=data.size=64")
    assert folder_name("--data", "./photos") != folder_name("--data", "./photos", "--set=data.split_seed=1")


def test_options_of_own_data_reach_it(s6mod, root, photos):
    options = ("--size", 8, "--test-fraction", 0.4, "--split-seed", 3)
    assert s6mod("data", photos, "--name", "a", *options)[0] == 0
    prepared = read_prepared(root / "a.safetensors")
    assert (prepared.image_shape, len(prepared.test_labels)) == ((3, 8, 8), 6)
    sets = ("--set=data.size=8", "--set=data.test_fraction=0.4", "--set=data.split_seed=3")
    code, _, err = s6mod("train", "--data", photos, *sets, *QUICK, "--out", "run")
    assert code == 0, err
    assert json.loads(Path("run/result.json").read_text())["data"] == prepared.fingerprint


def test_an_archive_of_own_data_is_unpacked_aside(s6mod, root, photos):
    shutil.make_archive(photos.parent / "pack", "zip", photos.parent, photos.name)
    assert s6mod("data", photos)[0] == 0
    code, _, err = s6mod("data", photos.parent / "pack.zip")
    assert code == 0, err
    assert sorted(os.listdir(root)) == ["my-photos.safetensors", "pack.safetensors"]
    assert (
        read_prepared(root / "pack.safetensors").fingerprint
        == read_prepared(root / "my-photos.safetensors").fingerprint
    )


def test_an_archive_without_a_folder_around_gives_equal_files_too(s6mod, root, photos):
    shutil.make_archive(photos.parent / "flat", "zip", photos)
    assert s6mod("data", photos.parent / "flat.zip")[0] == 0
    first = (root / "flat.safetensors").read_bytes()
    assert s6mod("data", photos.parent / "flat.zip")[0] == 0
    assert (root / "flat.safetensors").read_bytes() == first


def test_a_prepared_name_is_not_overwritten_by_a_folder_that_is_called_so(s6mod, root, photos):
    assert s6mod("data", photos, "--name", "insects", "--size", 8)[0] == 0
    before = (root / "insects.safetensors").read_bytes()
    photos.rename("insects")
    code, out, err = s6mod("data", "insects")
    assert code == 0, err
    assert "3x8x8" in out
    assert "write ./insects to prepare the one in this folder" in out
    assert (root / "insects.safetensors").read_bytes() == before
    code, out, err = s6mod("data", "./insects")
    assert code == 0, err
    assert "3x16x16" in out


def test_what_a_killed_command_left_is_cleared_away_after_a_day(s6mod, root, photos):
    (root / ".unpacked-old").mkdir(parents=True)
    (root / ".unpacked-old" / "x").touch()
    for name in (".old.safetensors.1.part", ".busy.safetensors.2.part", "mine.part"):
        (root / name).touch()
    for name in (".unpacked-old", ".old.safetensors.1.part", "mine.part"):
        os.utime(root / name, (0, 0))
    assert s6mod("data", photos)[0] == 0
    assert sorted(os.listdir(root)) == [".busy.safetensors.2.part", "mine.part", "my-photos.safetensors"]


def test_a_command_that_is_told_to_end_leaves_nothing(s6mod, root, photos, monkeypatch):
    def told(*_):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)  # the signal arrives here

    monkeypatch.setattr("s6mod.data.prepared._seal", told)
    before = signal.getsignal(signal.SIGTERM)
    code, _, _ = s6mod("data", photos)
    assert code == 143
    assert os.listdir(root) == []
    assert signal.getsignal(signal.SIGTERM) == before


def test_two_at_once_do_not_fail_over_each_others_clearing_away(s6mod, root, cifar, web, monkeypatch):
    md5 = hashlib.md5(cifar.read_bytes()).hexdigest()
    serve(monkeypatch, "cifar10", Download(f"{web}/{cifar.name}", md5))
    seal = prepared._seal

    def other_was_faster(path):
        seal(path)
        shutil.rmtree(root / "downloads")

    monkeypatch.setattr(prepared, "_seal", other_was_faster)
    code, _, err = s6mod("data", "cifar10")
    assert code == 0, err
    assert os.listdir(root) == ["cifar10.safetensors"]


def test_who_wants_what_another_command_is_fetching_waits_and_has_it(root, cifar, web, monkeypatch):
    md5 = hashlib.md5(cifar.read_bytes()).hexdigest()
    serve(monkeypatch, "cifar10", Download(f"{web}/{cifar.name}", md5))
    acquire = functools.partial(acquire_official, OFFICIAL["cifar10"], root, None, False)
    others, told = [], []

    def progress(*_):
        if not others:  # the first byte is about to come
            others.append(pool.submit(acquire, lambda *what: told.append(what)))
            wait(others, timeout=0.2)

    with ThreadPoolExecutor(1) as pool:
        assert acquire(progress) == []
        assert others[0].result() == []
    assert told == []  # it fetched nothing
    assert os.listdir(root) == ["cifar10.safetensors"]


@pytest.mark.parametrize("brought", ["archive", "folder", "parent"])
def test_official_files_that_one_has_are_prepared(s6mod, root, cifar, brought):
    given = {
        "archive": cifar,
        "folder": cifar.parent / "official/cifar-10-batches-py",
        "parent": cifar.parent / "official",
    }
    code, out, err = s6mod("data", "cifar10", "--from", given[brought])
    assert code == 0, err
    assert "50 training and 10 test images of 10 classes" in out
    assert os.listdir(root) == ["cifar10.safetensors"]
    official = OFFICIAL["cifar10"].source(cifar.parent / "official").dataset()
    assert read_prepared(root / "cifar10.safetensors").fingerprint == official.fingerprint


def test_official_files_under_the_root_are_prepared_in_place(s6mod, root, cifar):
    shutil.copytree(cifar.parent / "official", root)
    code, _, err = s6mod("train", "--data", "cifar10", *QUICK, "--out", "run")
    assert code == 0
    assert "later starts are faster after: s6mod data cifar10\n" in err
    assert s6mod("data", "cifar10")[0] == 0
    assert sorted(os.listdir(root)) == ["cifar-10-batches-py", "cifar10.safetensors"]


def serve(monkeypatch, name, *downloads):
    monkeypatch.setitem(OFFICIAL, name, replace(OFFICIAL[name], downloads=downloads))


def test_an_archive_is_fetched_checked_prepared_and_cleared_away(s6mod, root, cifar, web, monkeypatch):
    md5 = hashlib.md5(cifar.read_bytes()).hexdigest()
    serve(monkeypatch, "cifar10", Download(f"{web}/{cifar.name}", md5))
    code, out, err = s6mod("data", "cifar10")
    assert code == 0, err
    assert os.listdir(root) == ["cifar10.safetensors"]
    cifar.unlink()
    assert s6mod("data", "cifar10")[:2] == (0, out)  # what is there is not fetched again


def test_single_files_are_fetched_as_well(s6mod, root, tmp_path, web, monkeypatch):
    downloads = []
    for prefix, count in (("train", 20), ("t10k", 10)):
        images = b"\0\0\x08\x03" + count.to_bytes(4, "big") + (28).to_bytes(4, "big") * 2 + bytes(count * 784)
        labels = b"\0\0\x08\x01" + count.to_bytes(4, "big") + bytes(k % 10 for k in range(count))
        for kind, content in (("images-idx3", images), ("labels-idx1", labels)):
            file = tmp_path / f"{prefix}-{kind}-ubyte.gz"
            file.write_bytes(gzip.compress(content))
            downloads.append(Download(f"{web}/{file.name}", hashlib.md5(file.read_bytes()).hexdigest()))
    serve(monkeypatch, "fashion-mnist", *downloads)
    code, out, err = s6mod("data", "fashion-mnist")
    assert code == 0, err
    assert "20 training and 10 test images of 10 classes, 3x28x28" in out
    assert os.listdir(root) == ["fashion-mnist.safetensors"]


def test_without_a_network_it_says_how_to_bring_the_files(s6mod, root, monkeypatch):
    serve(monkeypatch, "cifar100", Download("http://127.0.0.1:9/cifar.tar.gz", "0" * 32))
    code, _, err = s6mod("data", "cifar100")
    assert code == 2
    assert "bring your own copy with --from" in err
    assert err.count("\n") == 1


def test_an_unreadable_image_is_named_or_passed_over_and_listed(s6mod, root, photos):
    bad = photos / "bee" / "3.png"
    bad.write_text("x")
    code, _, err = s6mod("data", photos)
    assert code == 2
    assert f"{bad}" in err
    assert "--skip-bad" in err
    assert os.listdir(root) == []
    code, out, err = s6mod("data", photos, "--skip-bad")
    assert code == 0, err
    assert f"passed over: {bad}" in out
    assert "of 3 classes" in out


def test_a_changed_byte_stops_a_run_before_it_begins(s6mod, root, photos):
    s6mod("data", photos, "--name", "a")
    content = bytearray((root / "a.safetensors").read_bytes())
    content[-200] ^= 4
    (root / "a.safetensors").write_bytes(content)
    for command in (("train", "--data", "a", *QUICK), ("data", "a")):
        code, _, err = s6mod(*command)
        assert code == 2
        assert "changed or damaged file; remove it and prepare again with s6mod data" in err
    assert os.listdir() == []


def test_a_stream_of_it_is_shown(s6mod, photos):
    code, out, err = s6mod("data", "digits", "--stream", "kind=blurry", "--seed", 1)
    assert code == 0, err
    assert "blurry stream, seed 1" in out
    code, out, err = s6mod("data", photos, "--stream", "tasks=3", "--plot", "stream.png")
    assert code == 0, err
    assert "cow" in out
    assert Path("stream.png").exists()


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["data", "cifar1000"], "did you mean 'cifar100'"),
        (["data", "./nowhere"], "which is not there; check the path"),
        (["data", "cifar10", "--from", "nowhere"], "which is not there; check the path"),
        (["data", "cifar10", "--from", "PHOTOS"], "expected cifar10 in"),
        (["data", "PHOTOS", "--name", "cifar10"], "a published data set; give another --name"),
        (["data", "PHOTOS", "--name", "a/b"], "a name of letters, digits"),
        (["data", "PHOTOS/ant"], "a folder for each class"),
        (["data", "digits", "--stream", "blurry"], "write for instance kind=blurry"),
        (["train", "--data", "PHOTOS/ant/0.png"], "bring the data into one of these forms"),
        (["train", "--data", "./nowhere"], "got nothing there; check the path"),
        (["train", "--data", "PHOTOS", "--set=num_classes=2", *QUICK], "num_classes of at least 3"),
        (["train", "--data", "digits", "--set=data.size=16"], "size, test_fraction and split_seed with the path"),
        (["train", "--data", "tiny-imagenet"], "run s6mod data tiny-imagenet, or with --from"),
    ],
)
def test_mistakes_are_one_sentence_and_leave_nothing(s6mod, root, photos, arguments, hint):
    code, out, err = s6mod(*(argument.replace("PHOTOS", str(photos)) for argument in arguments))
    assert code == 2
    assert hint in err
    assert [line for line in err.splitlines() if not line.startswith("warning:")][1:] == []
    assert "Traceback" not in out + err
    assert os.listdir() == []
    assert not root.exists() or os.listdir(root) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["data", "cifar10", "--size", "64"],
        ["data", "./photos", "--from", "x.zip"],
        ["data", "./photos", "--test-fraction", "1"],
        ["data", "./photos", "--size", "4"],
        ["data", "--plot", "plan.png"],
        ["data", "--stream", "kind=blurry"],
        ["data", "--name", "photos"],
        ["data", "digits", "--from", "x.zip"],
        ["data", "digits", "--stream", "kind=blurry", "--from", "x.zip"],
        ["data", "./photos", "--stream", "tasks=2", "--name", "a"],
        ["data", "./photos", "--stream", "tasks=2", "--skip-bad"],
        ["data", "ready", "--size", "16"],
    ],
)
def test_options_that_do_not_fit_are_refused(s6mod, photos, arguments):
    s6mod("data", photos, "--name", "ready")
    code, _, err = s6mod(*arguments)
    assert code == 2
    assert "Usage" in err or err.startswith("error: expected ")

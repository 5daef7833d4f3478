"""What the reader of foreign pickles takes, and what it refuses without running it."""

import os
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest

from s6mod.data import pickles
from s6mod.data.pickles import read_pickle
from s6mod.errors import DataError

PIXELS = np.arange(24, dtype=np.uint8).reshape(2, 12)


def written(tmp_path, content) -> Path:
    path = tmp_path / "batch"
    path.write_bytes(content)
    return path


class Call:
    """Pickles as a call of ``function``, the way an attacker writes one."""

    def __init__(self, function, *args):
        self.call = function, args

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", [2, 3, 4])
@pytest.mark.parametrize("keys", [str, str.encode])
def test_numbers_texts_lists_and_uint8_arrays_are_read(tmp_path, protocol, keys):
    values = {keys("data"): PIXELS, keys("labels"): [3, 300], keys("name"): b"caf\xc3\xa9"}
    read = read_pickle(written(tmp_path, pickle.dumps(values, protocol)))
    assert np.array_equal(read["data"], PIXELS)
    assert read["data"].dtype == np.uint8
    assert (read["labels"], read["name"]) == ([3, 300], b"caf\xc3\xa9")


def test_arrays_in_fortran_order_are_read_in_their_order(tmp_path):
    content = pickle.dumps({"data": np.asfortranarray(PIXELS)}, 4)
    assert np.array_equal(read_pickle(written(tmp_path, content))["data"], PIXELS)


def attacks(marker: Path):
    touch = f"open({str(marker)!r}, 'w')"
    inside = np.empty(1, dtype=object)
    inside[0] = Call(eval, touch)
    return {
        "a shell command": Call(os.system, f"touch {marker}"),
        "eval": Call(eval, touch),
        "exec": Call(exec, touch),
        "a NumPy function that writes": Call(np.savetxt, str(marker), np.zeros(1)),
        "a method of a class": Call(Path.touch, marker),
        "a call inside a list": [1, {"deep": Call(eval, touch)}],
        "a call inside an object array": inside,
    }


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
@pytest.mark.parametrize("attack", attacks(Path("marker")))
def test_a_malicious_pickle_executes_nothing(tmp_path, attack, protocol):
    marker = tmp_path / "marker"
    content = pickle.dumps({"labels": attacks(marker)[attack], "data": PIXELS}, protocol)
    pickle.loads(content)
    assert marker.exists(), "the attack must work where nobody guards, or the test proves nothing"
    marker.unlink()
    with pytest.raises(DataError, match="do not trust this file"):
        read_pickle(written(tmp_path, content))
    assert not marker.exists()


@pytest.mark.parametrize(
    "other",
    [
        np.array([1, "a", None], dtype=object),
        np.zeros(3, dtype=np.int64),
        np.zeros(3, dtype="V8"),
        np.zeros(3, dtype=[("a", "u1"), ("b", "O")]),
        np.zeros(3, dtype="M8[s]"),
    ],
)
def test_arrays_other_than_uint8_are_refused(tmp_path, other):
    with pytest.raises(DataError, match="another type than uint8"):
        read_pickle(written(tmp_path, pickle.dumps({"data": other}, 2)))


# Programs written by hand, in the language of pickle: each leaves the value of one entry of a dictionary.
def text(word: str) -> bytes:
    return b"X" + struct.pack("<i", len(word)) + word.encode()


def array(shape: bytes, content: bytes) -> bytes:
    empty = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tU\x01btR"
    return empty + b"(K\x01" + shape + b"cnumpy\ndtype\n(U\x02u1K\x00K\x01tR\x89" + content + b"tb"


def entry(program: bytes) -> bytes:
    return b"\x80\x04}U\x04data" + program + b"s."


def set_on(name: bytes, attribute: str) -> bytes:
    """Ask for an attribute to be set on what the name stands for itself, as the state of an object with slots."""
    return b"c" + name + b"\nN}" + text(attribute) + b"K\x01s\x86b"


PROGRAMS = {
    "a dotted name behind an allowed module": text("numpy") + text("ndarray.tofile") + b"\x93",
    "an allowed name in another module": b"cos\ndtype\n",
    "an object dtype": b"cnumpy\ndtype\n(U\x02O8K\x00K\x01tR",
    "an attribute of the array class": set_on(b"numpy\nndarray", "__setstate__"),
    "an attribute of the dtype class": set_on(b"numpy\ndtype", "__init__"),
    "an attribute of the text class": set_on(b"_codecs\nencode", "__new__"),
    "an attribute of a text": b"c_codecs\nencode\n(" + text("a") + text("latin1") + b"tR}" + text("b") + b"K\x01sb",
    "a text in another encoding": b"c_codecs\nencode\n(" + text("a") + text("rot13") + b"tR",
    "an array whose content is a list": array(b"K\x00\x85", b"]"),
    "an array larger than its content": array(b"K\x09\x85", b"U\x03abc"),
    "an array of negative shape": array(b"J\xff\xff\xff\xffJ\xfd\xff\xff\xff\x86", b"U\x03abc"),
    "an array without a shape": array(b"N", b"U\x03abc"),
    "a persistent reference": b"Psomewhere\n",
    "an extension code": b"\x82\x01",
}
FILES = {name: entry(program) for name, program in PROGRAMS.items()} | {
    "a key that is no text": b"}K\x01K\x02s.",
    "a list": b"].",
    "nothing": b"",
    "prose": b"this is not a pickle at all",
    "a zip archive": b"PK\x03\x04" + bytes(30),
}


def test_the_hand_written_programs_of_this_test_are_sound(tmp_path):
    read = read_pickle(written(tmp_path, entry(array(b"K\x03\x85", b"U\x03abc"))))
    assert read["data"].tolist() == list(b"abc")
    assert read_pickle(written(tmp_path, entry(text("abc")))) == {"data": "abc"}


@pytest.mark.parametrize("file", FILES)
def test_other_files_are_refused_and_leave_the_reader_as_it_was(tmp_path, file):
    before = {stand_in: dict(vars(stand_in)) for stand_in in pickles._KNOWN.values()}
    path = written(tmp_path, FILES[file])
    with pytest.raises(DataError, match="fetch the") as error:
        read_pickle(path)
    assert str(path) in str(error.value)
    assert before == {stand_in: dict(vars(stand_in)) for stand_in in pickles._KNOWN.values()}


def test_an_array_that_was_announced_but_never_filled_is_no_array(tmp_path):
    announced = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tU\x01btR"
    assert read_pickle(written(tmp_path, entry(announced))) == {"data": None}


@pytest.mark.parametrize("protocol", [2, 4])
def test_a_file_cut_anywhere_is_called_damaged(tmp_path, protocol):
    content = pickle.dumps({"data": PIXELS, "labels": [1, 2]}, protocol)
    for length in range(0, len(content), 7):
        with pytest.raises(DataError, match="truncated or damaged one; fetch the data set again"):
            read_pickle(written(tmp_path, content[:length]))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match="batch_7, got: No such file or directory; fetch the data set"):
        read_pickle(tmp_path / "batch_7")

"""Downloads from a server in this process that breaks off, resumes, forgets or lies as it is told."""

import errno
import hashlib
import http.server
import os
import threading

import pytest

from s6mod.data import download
from s6mod.data.download import Download, fetch
from s6mod.errors import DataError

CONTENT = os.urandom(300_000)
MD5 = hashlib.md5(CONTENT).hexdigest()


@pytest.fixture
def server():
    """Serves CONTENT; ``plan`` has, for each request to come, after how many bytes it breaks off (None: never)."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked = self.headers.get("Range")
            serve.requests.append(asked)
            if serve.status is not None:
                self.send_error(serve.status)
                return
            start = int(asked.split("=")[1].rstrip("-")) if asked and serve.ranges else 0
            if start >= len(CONTENT):
                self.send_error(416)
                return
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}")
            if serve.length:
                self.send_header("Content-Length", str(len(CONTENT) - start))
            self.end_headers()
            count = serve.plan.pop(0) if serve.plan else None
            self.wfile.write(CONTENT[start:] if count is None else CONTENT[start : start + count])

        def log_message(self, *_):
            pass

    serve = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    serve.requests, serve.plan, serve.ranges, serve.length, serve.status = [], [], True, True, None
    thread = threading.Thread(target=serve.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    serve.download = Download(f"http://127.0.0.1:{serve.server_port}/files/data.bin", MD5)
    yield serve
    serve.shutdown()
    thread.join()
    serve.server_close()


def test_a_file_is_fetched_once(server, tmp_path):
    seen = []
    file = fetch(server.download, tmp_path / "new", lambda done, total: seen.append((done, total)))
    assert file == tmp_path / "new" / "data.bin"
    assert file.read_bytes() == CONTENT
    assert os.listdir(file.parent) == ["data.bin"]
    assert (seen[0], seen[-1]) == ((0, 300_000), (300_000, 300_000))
    assert fetch(server.download, tmp_path / "new") == file
    assert server.requests == [None]


def test_a_broken_connection_is_gone_on_with(server, tmp_path):
    server.plan = [100_000, 50_000]
    assert fetch(server.download, tmp_path).read_bytes() == CONTENT
    assert server.requests == [None, "bytes=100000-", "bytes=150000-"]


def test_a_server_that_knows_no_ranges_is_asked_for_all_again(server, tmp_path):
    server.plan, server.ranges = [100_000], False
    assert fetch(server.download, tmp_path).read_bytes() == CONTENT
    assert server.requests == [None, "bytes=100000-"]


def test_what_an_earlier_call_left_is_gone_on_with(server, tmp_path):
    server.plan = [100_000] + [0] * download.ATTEMPTS
    with pytest.raises(DataError, match=r"all of http.*, got 100,000 of 300,000 bytes; try again to go on from there"):
        fetch(server.download, tmp_path)
    assert os.listdir(tmp_path) == ["data.bin.part"]
    server.requests.clear()
    assert fetch(server.download, tmp_path).read_bytes() == CONTENT
    assert server.requests == ["bytes=100000-"]


def test_a_part_that_was_already_whole_is_taken(server, tmp_path):
    (tmp_path / "data.bin.part").write_bytes(CONTENT)
    assert fetch(server.download, tmp_path).read_bytes() == CONTENT


def test_other_contents_are_thrown_away(server, tmp_path):
    with pytest.raises(DataError, match=f"the MD5 {'0' * 32} of .*, got {MD5}, so it was thrown away"):
        fetch(Download(server.download.url, "0" * 32), tmp_path)
    (tmp_path / "data.bin.part").write_bytes(b"rubbish")  # resumed, then found wrong
    with pytest.raises(DataError, match="thrown away"):
        fetch(server.download, tmp_path)
    assert os.listdir(tmp_path) == []


def test_without_a_length_the_md5_tells_that_the_download_ended_early(server, tmp_path):
    server.plan, server.length = [100_000], False
    with pytest.raises(DataError, match="the MD5"):
        fetch(server.download, tmp_path)
    assert os.listdir(tmp_path) == []
    assert fetch(server.download, tmp_path).read_bytes() == CONTENT


def test_an_absent_file_and_an_absent_network_say_what_to_do(server, tmp_path):
    server.status = 404
    with pytest.raises(DataError, match=r"the file http.*, got: 404 Not Found; bring your own copy with --from"):
        fetch(server.download, tmp_path)
    with pytest.raises(DataError, match=r"got 0 bytes, then: .*refused; try again .*--from"):
        fetch(Download("http://127.0.0.1:9/x", MD5), tmp_path)


def test_a_full_disk_leaves_nothing(server, tmp_path, monkeypatch):
    def full(response, file, watch, total):
        file.write(b"some")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(download, "_copy", full)
    with pytest.raises(DataError, match=r"to write .*part, got: No space left on device; make room"):
        fetch(server.download, tmp_path)
    assert os.listdir(tmp_path) == []

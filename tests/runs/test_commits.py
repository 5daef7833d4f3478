import json
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from s6mod.runs import commits as history
from s6mod.runs.commits import Commit, commits
from s6mod.runs.environment import digest_of
from s6mod.runs.records import export

RESULTS = Path(__file__).parents[2] / "results"
LOST = {"0d5268e9f6b7", "594812c4a211", "99345963ca58", "d544ec74d5da"}  # of runs that started from local changes
needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A checkout in which ``commit`` writes files, None taking one away, and commits them; it returns the hash."""
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):  # of a hook that runs the tests
        monkeypatch.delenv(name, raising=False)

    def git(*words):
        names = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "core.autocrlf=false")
        done = subprocess.run(["git", *names, *words], cwd=tmp_path, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def commit(files, day):
        for name, text in files.items():
            file = tmp_path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            if text is None:
                file.unlink()
            else:
                file.write_bytes(text)
        git("add", "-A")
        monkeypatch.setenv("GIT_COMMITTER_DATE", f"2026-01-{day:02d}T12:00:00Z")
        git("commit", "-qm", "a step")
        return git("rev-parse", "HEAD")

    git("init", "-q")
    commit.git = git
    return commit


@pytest.fixture(autouse=True)
def asked_anew():
    """Whatever the process knows of the history is forgotten, before and after."""
    history._known.cache_clear()
    yield
    history._known.cache_clear()


@needs_git
def test_a_digest_leads_to_the_first_commit_with_such_a_source_wherever_files_lay_then(tmp_path, repository):
    first = repository({"src/p/a.py": b"1\n", "src/p/a/b.py": b"\xff\n2", "src/p/c.yaml": b"3"}, 1)
    repository({"docs.md": b"more", "src/p/c.yaml": b"4"}, 2)  # the same source
    moved = repository({"src/p/a/b.py": None, "src/p/room/b.py": b"\xff\n2"}, 3)
    (tmp_path / "src/p/a.py").write_bytes(b"a local change")
    assert commits(tmp_path / "src/p") == {
        digest_of({"a/b.py": b"\xff\n2", "a.py": b"1\n"}): Commit(first[:10], "2026-01-01"),
        digest_of({"a.py": b"1\n", "room/b.py": b"\xff\n2"}): Commit(moved[:10], "2026-01-03"),
    }


@needs_git
def test_a_source_that_stood_only_on_a_side_branch_is_known_once_merged(tmp_path, repository):
    repository({"p/a.py": b"1"}, 1)
    main = repository.git("rev-parse", "--abbrev-ref", "HEAD")
    repository.git("checkout", "-qb", "side")
    side = repository({"p/a.py": b"2"}, 2)
    repository({"p/a.py": b"1"}, 3)
    repository.git("checkout", "-q", main)
    repository.git("merge", "-q", "--no-ff", "-m", "merge", "side")
    assert commits(tmp_path / "p")[digest_of({"a.py": b"2"})] == Commit(side[:10], "2026-01-02")


@needs_git
def test_a_package_that_is_installed_within_somebody_s_checkout_has_no_history(tmp_path, repository):
    repository({".gitignore": b"venv/\n", "mine.py": b"1"}, 1)
    (tmp_path / "venv" / "p").mkdir(parents=True)
    (tmp_path / "venv" / "p" / "a.py").write_bytes(b"1")
    assert commits(tmp_path / "venv" / "p") == {}


def test_without_git_nothing_is_known_and_nobody_is_warned(tmp_path, monkeypatch, write_run, call):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commits() == {}
    write_run(tmp_path / "runs", "er/digits")
    assert call("runs", "export", tmp_path / "results", tmp_path / "runs")[::2] == (0, "")


def test_an_export_of_runs_whose_source_no_commit_has_is_warned_of_in_one_sentence(
    tmp_path, monkeypatch, write_run, call
):
    monkeypatch.setattr(history, "commits", lambda: {"a" * 12: Commit("0123456789", "2026-01-01")})
    write_run(tmp_path / "runs", "er/digits", seed=0)
    assert call("runs", "export", tmp_path / "results", tmp_path / "runs")[::2] == (0, "")
    for seed in (1, 2):
        write_run(tmp_path / "runs", "er/digits", seed=seed, source="b" * 12)
    code, out, err = call("runs", "export", tmp_path / "results", tmp_path / "runs")
    assert (code, "2 records written, 1 was there already" in out) == (0, True)
    assert err.count("\n") == 1
    assert "got 2 whose source no commit has" in err


def test_what_is_known_of_commits_is_not_taken_for_a_record(tmp_path, write_run, call):
    (tmp_path / "commits.json").write_text('{"commits": {}, "unknown": {}}')
    export(write_run(tmp_path / "runs", "er/digits") / "result.json", tmp_path)
    assert call("runs", tmp_path)[::2] == (0, "")
    code, out, err = call("runs", "adopt", tmp_path)
    assert (code, err) == (0, "")
    assert out.startswith("0 records written, 1 was there already")


def test_every_public_record_has_its_commit_or_is_counted_among_those_without():
    stored = json.loads((RESULTS / "commits.json").read_text())
    contents = [json.loads(file.read_text()) for file in RESULTS.rglob("*.json")]
    found = Counter(content["environment"]["source"] for content in contents if "environment" in content)
    assert found.keys() == stored["commits"].keys() | stored["unknown"].keys(), "run make tables"
    assert stored["unknown"] == {digest: found[digest] for digest in stored["unknown"]}
    assert not stored["unknown"].keys() & commits().keys(), "run make tables"
    assert stored["unknown"].keys() <= LOST, "publish what ran from a committed tree"

"""The service as a person runs it: real processes, kills, bad requests, a browser."""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from chromium import Browser
from services import wait_until

pytestmark = pytest.mark.extras

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SMALL = (
    "--size",
    8,
    "--threads",
    1,
    "--set",
    "method.network.width=2",
    "--set",
    "memory_size=30",
    "--set",
    "updates=1",
)


@pytest.fixture(scope="module")
def process_of():
    sys.path.insert(0, str(BENCHMARKS))
    import serve_process

    yield serve_process
    sys.path.remove(str(BENCHMARKS))


@pytest.fixture
def service(process_of, tmp_path):
    with process_of.Process(tmp_path / "service", *SMALL, "--set", "branch=s6mod") as made:
        made.start()
        yield made


def teach(process_of, port, *numbers):
    client = process_of.Client(port)
    for number in numbers:
        assert client.learn(f"batch {number}", *process_of.batch(number, 8)).status == 200
    wait_until(lambda: client.get("/status")["journal"]["waiting"] == 0)
    wait_until(lambda: client.get("/status")["published"]["number"] >= len(numbers))
    return client


def test_kills_and_bad_requests_in_the_short_form():
    words = ("--only", "kills,bad", "--kills", "3", "--bad", "240", "--json")
    done = subprocess.run([sys.executable, BENCHMARKS / "serve.py", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["kills"]["state equal to the bit"] is True
    assert found["kills"]["lost"] == found["kills"]["learned twice"] == 0
    assert found["bad"]["not refused in one sentence with 4xx"] == 0


def test_a_signal_ends_it_in_peace_and_a_reader_has_what_it_saved(process_of, service):
    client = process_of.Client(service.port)
    for number in range(20):
        client.learn(f"batch {number}", *process_of.batch(number, 8))
    assert service.end() == 0
    with process_of.Process(service.folder, "--read-only", "--threads", 1) as reader:
        reader.start()
        status = process_of.Client(reader.port).get("/status")
        assert (status["role"], status["batches"]) == ("reader", 20)
        assert process_of.Client(reader.port).learn("x", *process_of.batch(1, 8)).status == 403
        assert reader.end() == 0
    assert service.tracebacks == 0


@pytest.mark.skipif(PROGRAM is None, reason="Chromium is not installed")
@pytest.mark.parametrize("width", [1280, 390], ids=["desktop", "phone"])
def test_the_page_is_live_and_rolls_back(process_of, service, tmp_path, width):
    client = teach(process_of, service.port, *range(8))
    client.post("/snapshot")
    teach(process_of, service.port, 9)
    client.ask("POST", "/predict", process_of.npy(process_of.batch(1, 8, 2)[0]), process_of.NPY)
    browser = Browser(PROGRAM, tmp_path / "profile")
    try:
        browser.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=width < 600
        )
        browser.visit(f"http://127.0.0.1:{service.port}/")

        def seen(expression):
            wait_until(lambda: browser.value(expression), 120)

        seen('document.getElementById("live").textContent == "live"')
        seen('document.querySelectorAll("#curve path").length == 2')
        seen('document.querySelectorAll("#classes tbody tr").length > 5')
        seen('document.querySelectorAll("#memory img").length > 5')
        seen('document.querySelectorAll("#predictions img").length == 2')
        seen('document.querySelectorAll("#routing .bar").length > 5')
        seen('document.querySelectorAll("#snapshots tbody tr").length == 2')
        assert browser.value("document.documentElement.scrollWidth") <= width
        for _ in range(2):  # the second says that it is meant
            browser.value('document.querySelector("#snapshots button").click()')
        wait_until(lambda: client.get("/status")["journal"]["unlearned"] == 1)
        browser.value('Object.assign(document.querySelector("#predictions input"), {value: "a new class"}).focus()')
        browser.value(
            'document.activeElement.dispatchEvent(new KeyboardEvent("keydown", {key: "Enter", bubbles: true}))'
        )
        wait_until(lambda: "a new class" in [each["label"] for each in client.get("/classes")["classes"]])
        seen('[...document.querySelectorAll("#classes td")].some((cell) => cell.textContent == "a new class")')
        assert browser.value('document.getElementById("alarm").hidden')
        assert browser.errors() == []
    finally:
        browser.close()
    begin = time.monotonic()
    assert service.end() == 0  # though a page was live a moment ago
    assert time.monotonic() - begin < 60

"""A headless Chromium, spoken to over the pipe of its DevTools protocol; nothing but the standard library."""

import fcntl
import json
import os
import select
import subprocess
import sys
import time

WRAP = (  # the protocol's pipe is file descriptors 3 and 4
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execvp(sys.argv[3], sys.argv[3:])"
)
ERRORS = ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled")
PATIENCE = 120  # seconds


class Browser:
    """One page of one browser."""

    def __init__(self, program, folder):
        theirs_in, self.into = (fcntl.fcntl(end, fcntl.F_DUPFD, 20) for end in os.pipe())
        self.out, theirs_out = (fcntl.fcntl(end, fcntl.F_DUPFD, 20) for end in os.pipe())
        options = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--remote-debugging-pipe",
        ]
        self.process = subprocess.Popen(
            [sys.executable, "-c", WRAP, str(theirs_in), str(theirs_out), program, *options,
             f"--user-data-dir={folder}", "about:blank"],
            pass_fds=(theirs_in, theirs_out), stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        self.count, self.rest, self.events, self.session = 0, b"", [], None
        page = next(t for t in self.ask("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.ask("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.ask(f"{domain}.enable")
        self.ask("Page.setLifecycleEventsEnabled", enabled=True)

    def ask(self, method, **parameters):
        """One command and its answer; events that come before it are kept."""
        self.count += 1
        message = {"id": self.count, "method": method, "params": parameters}
        if self.session is not None and not method.startswith(("Target.", "Browser.")):
            message["sessionId"] = self.session
        os.write(self.into, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self.count:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self.events.append(answer)

    def _receive(self):
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.out], [], [], max(0, deadline - time.monotonic()))
            part = os.read(self.out, 1 << 16) if ready else b""
            assert part, "the browser has gone silent"
            self.rest += part
        line, _, self.rest = self.rest.partition(b"\0")
        return json.loads(line)

    def visit(self, address):
        """Load a page from the start."""
        self.ask("Page.navigate", url="about:blank")
        self.events.clear()
        loader = self.ask("Page.navigate", url=address)["loaderId"]
        while not any(_loaded(event, loader) for event in self.events):
            self.events.append(self._receive())

    def value(self, expression):
        """What an expression gives."""
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, userGesture=True)
        assert "exceptionDetails" not in answer, (expression, answer["exceptionDetails"])
        return answer["result"].get("value")

    def errors(self):
        """What the console has to complain about."""
        self.value("0")
        return [e for e in self.events if e["method"] in ERRORS and _is_error(e["params"])]

    def close(self):
        """End it."""
        os.close(self.into)
        os.close(self.out)
        self.process.terminate()
        self.process.wait()


def _loaded(event, loader):
    told = event.get("params", {})
    return event["method"] == "Page.lifecycleEvent" and (told["name"], told["loaderId"]) == ("load", loader)


def _is_error(event):
    level = event.get("entry", {}).get("level") or event.get("type") or "error"
    return level in ("error", "warning", "assert")

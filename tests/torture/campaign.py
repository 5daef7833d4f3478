"""A campaign: rounds of attacks, each in a process of its own, side by side, until time is up; and what they found."""

import json
import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torture.attack import Attack, Round
from torture.child import Child, family

ROUND_LIMIT = 1800.0  # seconds after which a round hangs; commands within it have their own limit
KINDS = ("lost", "mismatch", "traceback", "hang", "drift")


@dataclass
class Score:
    """What has come of one attack."""

    rounds: int = 0
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    broken: Counter[str] = field(default_factory=Counter)
    notes: dict[str, float] = field(default_factory=dict)  # the largest of each


class Campaign:
    """The attacks, how they fare, and the rounds under way."""

    def __init__(self, attacks: Sequence[Attack], seed: int, folder: Path, say: Callable[[str], None]) -> None:
        self.attacks, self.seed, self.folder, self.say = list(attacks), seed, folder, say
        self.scores = {attack.name: Score() for attack in attacks}
        self.under_way: dict[str, tuple[Attack, int, Child]] = {}

    def work(self, minutes: float, at_once: int) -> None:
        """Begin rounds until the time is up, of the attack that has had least of its share; let them end."""
        end = time.monotonic() + 60 * minutes
        while time.monotonic() < end or self.under_way:
            while len(self.under_way) < at_once and time.monotonic() < end:
                attack = min(self._idle(), key=lambda each: self.scores[each.name].seconds / each.share)
                number = self.scores[attack.name].rounds
                self.begin(attack, f"{self.seed}{number:04d}", attack.size)
            self.collect()
            time.sleep(0.05)

    def once(self, sizes: dict[str, int], at_once: int) -> None:
        """One round of each attack, of the sizes given."""
        waiting = [attack for attack in self.attacks if sizes[attack.name]]
        while waiting or self.under_way:
            while waiting and len(self.under_way) < at_once:
                attack = waiting.pop(0)
                self.begin(attack, str(self.seed), sizes[attack.name])
            self.collect()
            time.sleep(0.05)

    def _idle(self) -> list[Attack]:
        busy = [attack.name for attack, _, _ in self.under_way.values()]
        return [attack for attack in self.attacks if attack.name not in busy] or self.attacks

    def begin(self, attack: Attack, seed: str, size: int) -> None:
        """Start a round."""
        place = self.folder / f"{attack.name}-{seed}"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)

        def act() -> None:
            os.chdir(place)
            (place / "report").write_text(Round(int(seed), place, size).report(attack.act))

        self.scores[attack.name].rounds += 1
        self.under_way[place.name] = attack, int(seed), Child(act, place / "round-said")

    def close(self) -> None:
        """End what is under way, if somebody stops the campaign."""
        for _, _, child in self.under_way.values():
            _end_family(child)

    def collect(self) -> None:
        """Take in the rounds that have ended, or should have."""
        for name, (attack, seed, child) in list(self.under_way.items()):
            place, late = self.folder / name, time.monotonic() - child.begun > ROUND_LIMIT
            if child.poll() is None and not late:
                continue
            del self.under_way[name]
            if child.code is None:
                _end_family(child)
            score = self.scores[attack.name]
            score.seconds += time.monotonic() - child.begun
            report = {"counts": {}, "notes": {}, "broken": [self._dead(place, child, late)]}
            if (place / "report").exists():
                report = json.loads((place / "report").read_text())
            score.counts.update(report["counts"])
            for key, value in report["notes"].items():
                score.notes[key] = max(value, score.notes.get(key, value))
            for kind, what in report["broken"]:
                score.broken[kind] += 1
                self._write_down(attack, seed, kind, what)
            if not report["broken"]:
                shutil.rmtree(place, ignore_errors=True)

    def _dead(self, place: Path, child: Child, late: bool) -> tuple[str, str]:
        now = (place / "now").read_text() if (place / "now").exists() else "nothing yet"
        if late:
            return "hang", f"no end after {ROUND_LIMIT:.0f} s, with {now}"
        return "traceback", f"the process ended with {child.code}, with {now}; it had said: {child.words()}"

    def _write_down(self, attack: Attack, seed: int, kind: str, what: str) -> None:
        """A failing case as a test, which does the round again."""
        name = f"{attack.name}-{seed}".replace("-", "_")
        comment = "".join(f"# {line}\n" for line in f"{kind}: {what}".splitlines()[:200])
        test = f"def test_{name}():\n    again({attack.name!r}, {seed})\n"
        file = self.folder / f"test_{name}.py"
        file.write_text(f"{comment}\nfrom torture.__main__ import again\n\n\n{test}", errors="backslashreplace")
        lines = what.strip().splitlines()
        raised = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)]
        self.say(f"BROKEN {attack.name} seed {seed}, {kind}: {(raised or lines)[-1][:300]}")
        self.say(f"  again: make torture AGAIN={attack.name}:{seed}; as a test: {file}")

    @property
    def broken(self) -> int:
        """How many rounds found something."""
        return sum(score.broken.total() for score in self.scores.values())

    def table(self) -> str:
        """What was done and found, as Markdown."""
        lines = ["| attack | rounds | kills | inputs | refused | " + " | ".join(KINDS) + " | minutes | noted |"]
        lines += ["|---" * (lines[0].count("|") - 1) + "|"]
        total = Score()
        for name, score in self.scores.items():
            if score.rounds:
                lines.append(_row(name, score))
                total.rounds += score.rounds
                total.seconds += score.seconds
                total.counts.update(score.counts)
                total.broken.update(score.broken)
        return "\n".join([*lines, _row("all", total)])


def _end_family(child: Child) -> None:
    """End a round with all that it has started."""
    child.kill(lambda _: family(child.pid))
    child.wait(10)


def _row(name: str, score: Score) -> str:
    counted = [score.counts[key] for key in ("kills", "inputs", "refused")]
    found = [score.broken[kind] for kind in KINDS]
    noted = ", ".join(f"{key} {value:.4g}" for key, value in score.notes.items())
    cells = [name, score.rounds, *counted, *found, f"{score.seconds / 60:.1f}", noted]
    return "| " + " | ".join(map(str, cells)) + " |"

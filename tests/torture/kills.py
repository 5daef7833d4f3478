"""Kill campaigns: SIGKILL at random moments, again and again, and what was begun must still end with the same bits."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Protocol

from torture.attack import Broken, Round
from torture.child import Child


class Victim(Protocol):
    """Something that is begun, killed and gone on with. One that serves would be one more class like these."""

    def prepare(self, folder: Path, random: Random) -> None:
        """What it needs before it begins."""

    def go(self, folder: Path) -> None:
        """Begin, or go on with what is there, to the end."""

    def check(self, folder: Path) -> None:
        """After each kill: what is there is whole, and nothing that was promised is lost."""

    def bits(self, folder: Path) -> Any:
        """What has come out in the end."""


def killing(make: Callable[[], Victim], strays: bool = False) -> Callable[[Round], None]:
    """Rounds of a campaign; ``strays``: it has workers, of which some may be left alive, or killed alone."""

    def act(round: Round) -> None:
        victim = make()
        straight, beaten = round.folder / "straight", round.folder / "beaten"
        straight.mkdir()
        victim.prepare(straight, Random(round.seed))
        begin = time.monotonic()
        to_the_end(victim, straight)
        usual = time.monotonic() - begin
        expected = victim.bits(straight)
        while round.counts["kills"] < round.size:
            beaten.mkdir()
            victim.prepare(beaten, Random(round.seed))
            _beat(victim, beaten, usual, strays, round)
            if victim.bits(beaten) != expected:
                raise Broken("mismatch", f"{type(victim).__name__} ended with other bits than in {straight}")
            round.counts["ends"] += 1
            shutil.rmtree(beaten)

    return act


def _beat(victim: Victim, folder: Path, usual: float, strays: bool, round: Round) -> None:
    """Kill it until it has come to its end in spite of that, or has been killed often enough; then let it end."""
    for number in range(round.size):
        moment = round.random.uniform(0, usual)
        round.now({"kill": number, "after seconds": moment})
        child = Child(lambda: victim.go(folder), folder.parent / "said")
        if child.wait(moment) is not None:  # it was quicker
            _ended_well(child)
            victim.check(folder)
            return
        how = round.random.choice(("all", "all", "leader", "one")) if strays else "all"
        chosen = {
            "all": lambda pids: pids,
            "leader": lambda pids: pids[:1],
            "one": lambda pids: [round.random.choice(pids)] if pids else [],
        }[how]
        round.counts["kills"] += child.kill(chosen) > 0
        if how == "one":  # whoever is left goes on by itself
            code = child.wait(400)
            if code is None:
                child.kill()
                raise Broken("hang", f"one process was killed and the others wait; it had said: {child.words()}")
            child.look()
        else:
            child.wait(400)
        victim.check(folder)
    to_the_end(victim, folder)


def to_the_end(victim: Victim, folder: Path) -> None:
    """Let it end by itself."""
    child = Child(lambda: victim.go(folder), folder.parent / "said")
    child.end()
    _ended_well(child)
    victim.check(folder)


def _ended_well(child: Child) -> None:
    child.look()
    if child.code != 0:
        raise Broken("lost", f"what was begun does not go on: exit code {child.code}: {child.words()}")

"""A long run: memory that grows, or steps that get slower, would show here."""

import resource
import time
from pathlib import Path
from statistics import median

from learners import batch, small
from torture.attack import Broken, Round

PARTS = 10  # of the run, each with its median; the first is left out, since much is built there
GROWTH = 24e6  # bytes that may come with the allocator's moods
SLOWER = 1.5  # times the processor time of a step, of the last part to the second


def long_run(round: Round) -> None:
    """Learn, predict and save for many steps, with every class known early on."""
    learner = small(round.random.choice(("er", "er-ace", "der++", "ocm")), memory_size=50)
    sizes, times = list[int](), list[float]()
    for part in range(PARTS):
        taken = []
        for step in range(round.size // PARTS):
            begin = time.process_time()
            learner.learn(*batch(step + part, (step % 6, (step + 1) % 6)))
            taken.append(time.process_time() - begin)
            if step % 50 == 0:
                learner.predict(batch(step, (0, 1))[0])
                learner.losses()
                learner.save(round.folder / "state")
        times.append(median(taken))
        sizes.append(_resident())
        round.now({"part": part, "step times": times, "resident": sizes})
    round.counts["steps"] += round.size
    growth, slower = (sizes[-1] - sizes[1]) / 1e6, times[-1] / times[1]
    round.notes |= {"MB grown": growth, "times slower": slower}
    if growth > GROWTH / 1e6:
        raise Broken("drift", f"memory grew by {growth:.1f} MB: {sizes}")
    if slower > SLOWER:
        raise Broken("drift", f"steps took {slower:.2f} times as long at the end: {times}")


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

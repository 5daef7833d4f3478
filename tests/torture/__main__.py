"""The attacks, the options, the table at the end; exit code 1 if anything was lost, differed, crashed or hung."""

import argparse
import importlib.util
import os
import platform
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import sklearn.datasets  # noqa: F401 - what a run would import, so that forked processes have it
import torch
import torch._dynamo

import s6mod.checks
import s6mod.cli.commands  # noqa: F401
from torture import fuzz_data, fuzz_state, fuzz_words, places, victims
from torture.attack import Attack, Round
from torture.campaign import Campaign
from torture.kills import killing
from torture.long_run import long_run


def _no_optuna() -> str | None:
    return None if importlib.util.find_spec("optuna") else "optuna is not installed"


ATTACKS = [
    Attack("kill-train", killing(victims.Training), 6, 3, short=2),
    Attack("kill-sweep", killing(victims.Sweep, strays=True), 3, 3),
    Attack("kill-save", killing(victims.Save), 20, 2, short=4),
    Attack("kill-data", killing(victims.Data), 20, 1, short=4),
    Attack("kill-adopt", killing(victims.Adopt), 20, 1, short=4),
    Attack("kill-tune", killing(victims.Tune, strays=True), 2, 2, missing=_no_optuna),
    Attack("kill-serve", killing(victims.Serve), 20, 2, short=4),
    Attack("fuzz-options", fuzz_words.options, 300, short=40),
    Attack("fuzz-set", fuzz_words.assignments, 300, short=40),
    Attack("fuzz-yaml", fuzz_words.documents, 300, short=40),
    Attack("fuzz-checkpoint", fuzz_state.checkpoints, 300, short=40),
    Attack("fuzz-record", fuzz_state.records, 300, short=40),
    Attack("fuzz-learner", fuzz_state.arguments, 300, short=40),
    Attack("fuzz-archive", fuzz_data.archives, 300, short=40),
    Attack("fuzz-image", fuzz_data.images, 300, short=40),
    Attack("fuzz-csv", fuzz_data.tables, 300, short=40),
    Attack("fuzz-npz", fuzz_data.arrays, 300, short=40),
    Attack("fuzz-pickle", fuzz_data.pickles, 300, short=40),
    Attack("namespaces", places.two_namespaces, 200, 1, short=50, missing=places.no_namespaces),
    Attack("small-disk", places.small_disk, 3, 1, short=1, missing=places.no_mounts),
    Attack("little-memory", places.little_memory, 3, 1, short=1),
    Attack("long-run", long_run, 2000, 1),
]


def main() -> int:
    """Run a campaign."""
    parser = argparse.ArgumentParser(prog="torture", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="begin rounds for so long (default: 30)")
    parser.add_argument("--short", action="store_true", help="one small round of each quick attack instead")
    parser.add_argument("--only", default="", help="attacks whose names begin so, separated by commas")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of everything (default: the time)")
    parser.add_argument("--at-once", type=int, default=os.cpu_count() or 1, help="rounds side by side")
    parser.add_argument("--out", type=Path, help="folder for what fails (default: a fresh one)")
    parser.add_argument("--again", metavar="ATTACK:SEED", help="one round as it was")
    asked = parser.parse_args()
    settle()
    folder = asked.out or Path(tempfile.mkdtemp(prefix="torture-"))
    wanted = tuple(filter(None, asked.only.split(",")))
    attacks = [attack for attack in ATTACKS if attack.name.startswith(wanted or "")]
    if asked.again:
        name, _, seed = asked.again.partition(":")
        attacks, asked.seed = [attack for attack in ATTACKS if attack.name == name], int(seed)
    say = partial(print, flush=True)
    for attack in list(attacks):
        if (why := attack.missing()) is not None:
            say(f"skipped {attack.name}: {why}")
            attacks.remove(attack)
    campaign = Campaign(attacks, asked.seed, folder.absolute(), say)
    say(f"seed {asked.seed}; {asked.at_once} at once on {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"torch {torch.__version__}; what fails is kept in {folder}")  # fmt: skip
    try:
        if asked.short or asked.again:
            campaign.once({each.name: each.short if asked.short else each.size for each in attacks}, asked.at_once)
        else:
            campaign.work(asked.minutes, asked.at_once)
    finally:
        campaign.close()
    say(campaign.table())
    return int(campaign.broken > 0)


def settle() -> None:
    """One thread, no GPU and no cache of the user's in this process and all that it forks."""
    torch.set_num_threads(1)
    os.environ |= {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "COLUMNS": "120"}
    os.environ.pop("S6MOD_DATA", None)


def again(name: str, seed: int) -> None:
    """A round as it was, in this process, for a failing case that is a test."""
    settle()
    [attack] = [attack for attack in ATTACKS if attack.name == name]
    folder = Path(tempfile.mkdtemp(prefix="torture-"))
    os.chdir(folder)
    round = Round(seed, folder, attack.size)
    round.report(attack.act)
    assert not round.broken, round.broken


if __name__ == "__main__":
    sys.exit(main())

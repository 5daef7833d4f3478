"""``s6mod ablate``: what each part of the branch brings, beside its controls."""

from pathlib import Path

from s6mod.cli import options
from s6mod.cli.app import app, leave, warn_of


@app.command()
def ablate(
    method: options.Learner,
    data: options.CellData = None,
    memory: options.CellMemory = None,
    seeds: options.Seeds = "0-2",
    assignments: options.BranchAssignments = None,
    to: options.To = None,
    out: options.Out = Path("runs"),
    store: options.MoreStores = None,
    no_run: options.NoRun = False,
    device: options.Device = "auto",
    data_root: options.DataRoot = None,
    workers: options.Workers = None,
    at_once: options.AtOnce = None,
    yes: options.Yes = False,
    quiet: options.Quiet = False,
    own: options.Import = None,
) -> None:
    """What each part of S6MOD brings, beside its controls.

    Runs, a table and a figure.
    """
    from s6mod.analysis.ablation import ablation
    from s6mod.analysis.carry_out import How, carry_out
    from s6mod.analysis.question import split_changes, whole_cell
    from s6mod.experiments.perform import Means

    branch, others = split_changes(assignments or [])
    question = ablation(whole_cell(method, data, memory, branch, data_root)).over(others)
    how = How(out, store, data_root, Means(device, workers, at_once), no_run, yes, quiet)
    leave(*carry_out(question, seeds, to, how, warn_of))

"""``s6mod ablate``: what each part of the branch brings, beside its controls."""

from pathlib import Path

from s6mod.cli import study as shared
from s6mod.cli.app import app


@app.command()
def ablate(
    method: shared.Learner,
    data: shared.Data = None,
    memory: shared.Memory = None,
    seeds: shared.Seeds = "0-2",
    assignments: shared.Assignments = None,
    to: shared.To = None,
    out: shared.Out = Path("runs"),
    store: shared.Stores = None,
    no_run: shared.NoRun = False,
    device: shared.Device = "auto",
    data_root: shared.DataRoot = None,
    workers: shared.Workers = None,
    at_once: shared.AtOnce = None,
    yes: shared.Yes = False,
    quiet: shared.Quiet = False,
) -> None:
    """What each part of the branch brings to a method, and what a control without it brings: runs, table, figure."""
    from s6mod.analysis.ablation import ablation
    from s6mod.analysis.question import split_changes, whole_cell

    branch, others = split_changes(assignments or [])
    question = ablation(whole_cell(method, data, memory, branch, data_root)).over(others)
    how = shared.How(out, store, device, data_root, workers, at_once, yes, quiet)
    shared.carry_out(question, seeds, to, no_run, how)

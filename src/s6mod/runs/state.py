"""A run's state: what a checkpoint holds beside the learner's, and a run put where its checkpoint left it."""

import warnings
from typing import TYPE_CHECKING

from s6mod.engine.checkpoint import Snapshot, fitting, read_state
from s6mod.errors import CheckpointError
from s6mod.runs.environment import differences
from s6mod.runs.folder import RunFolder
from s6mod.runs.progress import Cursor

if TYPE_CHECKING:
    from s6mod.runs.run import Run


def snapshot(run: "Run", records_bytes: int) -> Snapshot:
    """A run as it is now; ``records_bytes``: how far its records reach."""
    tree = {"learner": run.learner.state_dict(), "cursor": vars(run.cursor), "records_bytes": records_bytes}
    header = {
        "kind": "run",
        "hash": run.hash,
        "config": run.learner.config.plain(),  # with it a Learner can be made of the state
        "environment": run.environment,
    }
    return Snapshot.of(tree, header)


def restore(run: "Run", files: RunFolder) -> None:
    """Put a run, and the records in its folder, where its checkpoint left them."""
    state, header = read_state(files.checkpoint)
    with fitting(files.checkpoint):
        if header["hash"] != run.hash:
            raise CheckpointError(
                f"expected a checkpoint of run {run.hash}, got one of {header['hash']} in {run.folder}; "
                "restore the right one"
            )
        if changed := differences(header["environment"], run.environment):
            warnings.warn(f"resuming where results may differ in the last bits: {'; '.join(changed)}", stacklevel=3)
        run.learner.load_state_dict(state["learner"], run.dataset.image_shape)
        run.cursor = Cursor(**state["cursor"])
        if not 0 <= run.cursor.position <= len(run.plan):
            raise ValueError(f"step {run.cursor.position} of {len(run.plan)}")
        if run.result is None:  # else the state may be of an earlier step, see Run._conclude
            files.cut(state["records_bytes"])

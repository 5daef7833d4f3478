"""The page docs/reference/reproduction.md: all tables, written by the program from public records and never by hand."""

from collections.abc import Sequence
from pathlib import Path

from s6mod.errors import ConfigError
from s6mod.files import write_whole
from s6mod.paper.render import LEGEND, markdown
from s6mod.paper.tables import Filled

MARK = b"<!-- Written by: s6mod table"  # on every such page
HEAD = """# Reproduction

<!-- Written by: s6mod table --write docs/reference/reproduction.md. Do not edit. -->

The paper's tables with our results beside its figures, from the records in [`results/`](../../results). Cells that
have not been run stand [at the end](#what-is-missing), with what they cost. How to run any part of this:
[sweeps](../how-to/sweeps.md). What was tried, and what is not understood:
[the laboratory](../laboratory/reproduction-notes.md).

* **Verdict.** By Welch's 95 % interval of our mean minus the paper's, which is an average of ten runs. *Differs*: it
  excludes 0, with three seeds or more. *Agrees*: it contains 0 and its half is at most 2 points. Else *open*, with the
  number of seeds that would decide it.
* **Precision.** Rows of different precision are never averaged. A gain is paired with the method's runs of the same
  precision and seeds.
* **Controls.** `+confidence` and `+smoothing` are penalties of weight 1 on the base head, without any branch. What
  S6MOD gains beyond them, its branch has earned.
* **Presets.** On CIFAR most presets of S6MOD are ours, chosen on seeds that are not reported here (OnPro takes over
  OCM's). The verdict of `er+s6mod` is about our preset; that of the row "published weights" about those.
* **Views.** On ER, and on CIFAR-100 on all but MOSE, the preset's branch sees another augmentation of the samples than
  the base head does, as in the released code, and there is no L_Cont. OCM and OnPro have the released L_Diff,
  KL(Q || P), too. In rows "shared view" it sees that of the base head, beta is 0.5 and L_Diff the paper's; so it is in
  MOSE's preset and, on CIFAR-10, those of OCM and OnPro.
* **Pairs.** On CIFAR-100 their presets have alpha = 0.5 and a strong L_DR. "alpha = 5" is the released one of
  OCM-CCLDC; "L_Diff alone" has the weights that were released for OnPro-CCLDC.
* **Forgetting** is that of CCL-DC, but of MOSE for MOSE and MOE-MOSE, as in the published rows.

"""


def page(tables: Sequence[Filled], missing: str) -> str:
    """The whole text; ``missing``: a section on what has not been run."""
    return HEAD + LEGEND[0].upper() + LEGEND[1:] + ".\n\n" + markdown(tables).rstrip() + "\n\n" + missing


def write_page(file: Path, text: str) -> None:
    """Write it, in place of an older one but of nothing else."""
    if file.exists() and (found := file.read_bytes()) and MARK not in found:
        raise ConfigError(f"expected a new file or an older page of its own, got {file}; name another")
    write_whole(file, text)


def check_page(file: Path, text: str) -> None:
    """Refuse one that is not there or says something else."""
    if not file.exists() or file.read_bytes() != text.encode():
        raise ConfigError(f"expected {file} as the records say, got a stale page; run s6mod table --write {file}")

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

The paper's tables with our results beside its figures, from the records in [`results/`](../../results). A verdict is by
Welch's 95 % interval of our mean minus the paper's, which is an average of ten runs: *differs* if it excludes 0 with
three seeds or more, *agrees* if it contains 0 and its half is at most 2 points, else *open*, with the number of seeds
that would decide it, spread as ours are so far. Rows of different precision are never averaged, and a branch's gain is
paired with its method's runs of the same precision and seeds. A control (`+confidence`, `+smoothing`) is a penalty of
weight 1 on the base head without any branch: what S6MOD gains beyond it, its branch has earned. On CIFAR our presets
for S6MOD differ from the paper and its released code, by choices made on seeds that are not reported here (OnPro takes
over OCM's): the verdict of `er+s6mod` is then about our preset, and that of the row "published weights" about those.
On ER, and on CIFAR-100 on all but MOSE, the preset's branch sees another augmentation of the samples than the base
head does, as in the released code, and there is no L_Cont; OCM and OnPro have the released L_Diff, KL(Q || P), too. In
rows "shared view" it sees that of the base head, beta is 0.5 and L_Diff the paper's, as in MOSE's preset and, on
CIFAR-10, those of OCM and OnPro. On CIFAR-100 the pairs' presets have alpha = 0.5 and a strong L_DR; "alpha = 5" is
the released one of OCM-CCLDC, "L_Diff alone" has the weights that were released for OnPro-CCLDC. Average forgetting is
that of CCL-DC, but of MOSE for MOSE and MOE-MOSE, as in the published rows. What was tried and is not understood
stands in [reproduction-notes.md](../laboratory/reproduction-notes.md); how to run any part of this in
[sweeps.md](../how-to/sweeps.md).

"""


def page(tables: Sequence[Filled]) -> str:
    """The whole text."""
    return HEAD + LEGEND[0].upper() + LEGEND[1:] + ".\n\n" + markdown(tables).rstrip() + "\n"


def write_page(file: Path, tables: Sequence[Filled]) -> None:
    """Write it, in place of an older one but of nothing else."""
    if file.exists() and (found := file.read_bytes()) and MARK not in found:
        raise ConfigError(f"expected a new file or an older page of its own, got {file}; name another")
    write_whole(file, page(tables))


def check_page(file: Path, tables: Sequence[Filled]) -> None:
    """Refuse one that is not there or does not say what these tables say."""
    if not file.exists() or file.read_bytes() != page(tables).encode():
        raise ConfigError(f"expected {file} as the records say, got a stale page; run s6mod table --write {file}")

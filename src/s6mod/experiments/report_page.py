"""The page docs/reproduction.md: all tables, written by the program from public records and never by hand."""

from collections.abc import Sequence

from s6mod.experiments.render import LEGEND, markdown
from s6mod.experiments.tables import Filled

MARK = b"<!-- Written by: s6mod table"  # on every such page
HEAD = """# Reproduction

<!-- Written by: s6mod table --write docs/reproduction.md. Do not edit. -->

The paper's tables with our results beside its figures, from the records in [`results/`](../results). A verdict takes
three seeds: *reproduced* if the 95 % interval of our mean minus the paper's contains 0, else *better* or *below*; with
fewer it is *undecided*. Rows of different precision are never averaged, and a branch's gain is paired with its method's
runs of the same precision and seeds. A control (`+confidence`, `+smoothing`) is a penalty on the base head without any
branch: what S6MOD gains beyond it, its branch has earned. On CIFAR our presets for S6MOD have another weight of L_Cont
than the paper or its released code, chosen on seeds that are not reported here: the verdict of `er+s6mod` is then about
our weights, and that of the row "published weights" about those. In the row "fresh view" the branch sees another
augmentation of the samples than the base head does, as in the released code, and L_Cont is left out: a second backbone
pass in every step; on OCM and OnPro its L_Diff is KL(Q || P), also as released. Average forgetting is that of CCL-DC,
but of MOSE for MOSE and MOE-MOSE, as in the published rows. What was tried and is not understood stands in
[reproduction-notes.md](reproduction-notes.md); how to run any part of this in [sweeps.md](sweeps.md).

"""


def page(tables: Sequence[Filled]) -> str:
    """The whole text."""
    return HEAD + LEGEND[0].upper() + LEGEND[1:] + ".\n\n" + markdown(tables).rstrip() + "\n"

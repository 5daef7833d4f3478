"""Counts the changes to what a step computes, bit by bit: results with the same number may be compared in pairs.

It stands in the environment of every result. When to raise it is said in docs/explanation/design.md.
"""

# number  since       what changed
#      1  2026-11-18  counted from here on; results without a number are older
#      2  2026-11-18  er-ace, der and der++ in one pass over stream and memory; more than 256 classes: routing of S6MOD
#                     compares the classes of a batch with all, not all with all
#      3  2026-11-18  er-ace: classes that have not come are in neither cross-entropy
NUMERICS = 3

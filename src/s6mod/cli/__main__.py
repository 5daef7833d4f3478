"""``python -m s6mod.cli``."""

from s6mod.cli import main

main()

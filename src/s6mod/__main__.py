"""``python -m s6mod``."""

from s6mod.cli import main

main()

"""What carries a run: steps, evaluation, checkpoints and the named random streams behind every draw."""

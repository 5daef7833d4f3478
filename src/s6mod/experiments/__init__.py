"""Experiments: presets of the published settings, and the runs of them."""

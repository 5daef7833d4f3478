"""Tuning: a search over configuration fields with Optuna, on seeds and tasks that no reported result rests on."""

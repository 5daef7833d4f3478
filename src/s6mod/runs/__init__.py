"""One run of an experiment: its configuration and folder, its records, and the store of many."""

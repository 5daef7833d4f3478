"""The fire as a program: kills, bad inputs, small disks, little memory and long runs, for as many minutes as one gives.

``make torture MINUTES=30`` runs it. Every attack is a row of ``ATTACKS`` in ``__main__.py``. A round of one is a
process that is made by a seed, and can be done again by its name and seed alone.
"""

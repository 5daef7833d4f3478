"""Learners at home in other libraries: one thin file a library, imported by name, each with an extra of its own.

An interface holds a ``Learner``, ``learner_`` or ``learner``, and adds nothing to what it learns or predicts.
"""

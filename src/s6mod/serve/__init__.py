"""A learner as a service: it predicts while it learns, and what it has accepted is never lost.

``journal`` holds what was accepted, ``writer`` learns it, ``service`` answers and has a reader that follows a writer,
``application`` speaks HTTP.
The packages of the extra ``serve`` are imported by ``application`` and ``run`` alone.
"""

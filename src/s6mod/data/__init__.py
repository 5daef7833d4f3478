"""Data sets by name, by path or from arrays and objects, and the streams they are seen in.

A new published data set is one new file here that describes it as a source, and one entry in ``official.py``; a new
format of own data is one new file and one line in ``own.py``.
"""

from s6mod.data.catalog import DataConfig, default_root, known, load
from s6mod.data.dataset import Dataset
from s6mod.data.streams import StreamBatch, StreamConfig, StreamPlan, make_plan

__all__ = [
    "DataConfig",
    "Dataset",
    "StreamBatch",
    "StreamConfig",
    "StreamPlan",
    "default_root",
    "known",
    "load",
    "make_plan",
]

"""The order in which a learner sees a data set, decided before the first step and fixed as a plan.

``config`` says what can be asked for, ``kinds`` arranges samples in tasks, ``make`` puts a plan together and
``plan`` is what comes out. What a learner does with the boundaries it is told of is not decided here.
"""

from s6mod.data.streams.config import StreamConfig
from s6mod.data.streams.make import make_plan
from s6mod.data.streams.plan import StreamBatch, StreamPlan

__all__ = ["StreamBatch", "StreamConfig", "StreamPlan", "make_plan"]

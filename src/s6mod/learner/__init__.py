"""The learner: the public object, its configuration, its peers."""

from s6mod.learner.config import LearnerConfig
from s6mod.learner.learner import Learner

__all__ = ["Learner", "LearnerConfig"]

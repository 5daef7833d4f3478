"""Mirrors of a run's records in TensorBoard, W&B and MLflow. Run folders stay the truth; a mirror may fail."""

from s6mod.trackers.base import KNOWN, Subject, Tracker, check_name, require
from s6mod.trackers.mirrors import Mirrors

__all__ = ["KNOWN", "Mirrors", "Subject", "Tracker", "check_name", "require"]

"""Teachers: plug-ins that let an averaged copy of the network teach it, on any method with logits, beside a branch."""

from s6mod.teacher.base import Teacher, TeacherConfig, teachers
from s6mod.teacher.mkd import MKD, MKDConfig

__all__ = ["MKD", "MKDConfig", "Teacher", "TeacherConfig", "teachers"]

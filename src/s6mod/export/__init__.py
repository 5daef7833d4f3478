"""What predicts, taken out of a learner: one file for ``onnxruntime`` or torch, and labels for image files.

``export`` writes the file, ``open_model`` opens what predicts. Nothing here learns, and no learner is changed.
"""

from s6mod.export.model import Model, open_model
from s6mod.export.write import Exported, export

__all__ = ["Exported", "Model", "export", "open_model"]

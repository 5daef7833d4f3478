"""What predicts as one file, for ``onnxruntime`` or torch: a predictor, compared with the file before it is written.

``Learner.export`` is the way in. Nothing here learns, and no learner is known.
"""

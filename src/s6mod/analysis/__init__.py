"""The paper's analysis: ablation, sensitivity, routing, features, and what goes on inside the branch."""

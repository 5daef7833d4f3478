"""The paper's figures, and ours beside them: tables, verdicts and the page of tables."""

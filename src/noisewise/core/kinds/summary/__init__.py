"""Block summaries: what can be asked of them, the posterior within a block, the Release."""

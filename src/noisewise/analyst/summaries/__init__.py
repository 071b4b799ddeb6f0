"""What block summaries say: noise-aware probabilities, intervals and quantiles.

`laws` has those of the mechanisms, as functions of released numbers; `answers` puts a Release
before them. `posterior.summary` is what a user asks.
"""

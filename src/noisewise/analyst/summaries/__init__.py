"""What block summaries say: noise-aware probabilities, intervals and quantiles.

One file a mechanism, each in the same order: what is averaged and its law, then `probability` (and
`quantile` where there is one) as functions of released numbers. `SummaryPosterior` puts a Release
before them.
"""

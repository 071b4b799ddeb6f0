"""Subsample and aggregate: regressions within blocks of rows, and private summaries of them.

Rows are put into M blocks at random, r times over. Every block's regression depends on its own rows
only, and what is published is an aggregate that one block cannot move by much, however far a single
record pulls that block's regression. So the data need no bounds. The way of the rows: `sums` (and
`limbs`, their arithmetic), `regressions` (or `models`, where a block fits anything else than a
line), then a mechanism: `additive`, or `mean` and `location_scale`, which draw from `median`.
"""

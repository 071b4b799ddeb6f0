"""Subsample and aggregate: regressions within blocks of rows, and private summaries of them.

Rows are put into M blocks at random, r times over. Every block's regression depends on its own rows
only, and what is published is an aggregate that one block cannot move by much, however far a single
record pulls that block's regression. So the data need no bounds.

The way of the rows, in the order of the files:

assignment       which block a row goes to, and why that is private
grid, kernel     values as integers, and their exact sums in every block, in one pass
plan, sums       what is accumulated, and the accumulator that engines fill
regressions      all blocks' regressions at once, from their sums
sign, stouffer, rescaled_normal, fisher, clipped_mean, location_scale
                 one file a mechanism: what a block contributes, the claim, the proof
median           the exponential mechanism that `location_scale` draws from, exactly
choice           how many blocks and partitions, and what accuracy to expect
"""

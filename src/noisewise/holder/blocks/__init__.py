"""Subsample and aggregate: regressions within blocks of rows, and private summaries of them.

Rows are put into M blocks at random, r times over. Every block's regression depends on its own rows
only, and what is published is an aggregate that one block cannot move by much, however far a single
record pulls that block's regression. So the data need no bounds.

The way of the rows, in the order of the files:

sums             values as integers, which block a row goes to, why that is private, and the
                 accumulators: of sums in blocks, and of all rows where sums are not enough
limbs            their exact sums of products, in integers that 64 bits can hold
regressions      all blocks' regressions at once, from their sums
additive         sign, stouffer, rescaled_normal, fisher and clipped_mean: what a block contributes,
                 the claim, the proof
location_scale   the same for two medians of a coefficient
mean             the same for a mean within a range that two such draws find
median           the exponential mechanism that both draw from, exactly
models           blocks that fit anything else than a line
choice           how many blocks and partitions, and what accuracy to expect
"""

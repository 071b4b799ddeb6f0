"""Which block a row goes to: drawn for each row and partition anew, from secret random numbers.

**Claim.** Let F be a function of the r M blocks (each a set of rows, in no order) such that for
all contents that differ in at most m blocks of each partition F's output laws are ε-close. Then
the whole procedure, assignment included, is ε-differentially private for a unit of m rows, for
`replace_one` and for `add_remove_one`, *for tables without order*.

**Proof.** Each row draws its r blocks independently of everything, by the same law. Hence the law
of the blocks' contents depends on the table only as on a multiset of rows: permuting rows permutes
independent draws of equal laws. Take two neighbouring tables. Under `replace_one` pair up their
rows so that all but m pairs are equal (sorting a table anew after a replacement changes nothing,
because order does not matter). Give both rows of a pair the same draws: both tables then have the
right law of contents, and given the draws they differ in at most m blocks of each partition,
namely those that the m unequal pairs are in. Under `add_remove_one` do the same with the common
rows; the m others are in at most m blocks of each partition. So P(output | draws) is ε-close for
every outcome of the draws, and averaging over them keeps that. ∎

The draws stay secret, and rows do not keep blocks by position. A public seed by position would be
private for ordered tables only: in a file that is sorted by a sensitive value, replacing one record
moves others to new positions, hence to new blocks, and any number of blocks may change.

The law itself is free. A block is drawn as ⌊u M / 2**32⌋ from 32 random bits u, which is uniform up
to M / 2**32.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from noisewise.holder.mechanisms import randomness

Blocks = npt.NDArray[np.uint32]


def draw_blocks(rows: int, partitions: int, blocks: int) -> Blocks:
    """Blocks for new rows, from the operating system's random numbers; shape (partitions, rows)."""
    words = np.frombuffer(randomness.octets(4 * rows * partitions), dtype=np.uint32)
    drawn = (words.astype(np.uint64) * np.uint64(blocks)) >> np.uint64(32)
    return drawn.astype(np.uint32).reshape(partitions, rows)

"""One file an algorithm, all in the same section order."""

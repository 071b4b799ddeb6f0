"""From a value of the table to exact integer sums over the rows."""

"""Bayesian networks: from noisy counts to the posterior of all tables, and questions to it.

`layout` is a network as arrays, `observed` what a Release measured, `prior` what is believed of the
tables or learned. The methods are `counts` and `records` (all tables together), `per_table` (each
node by itself) and `plugin` (the noise ignored); `queries` answers questions, `fit`
puts it together.
"""

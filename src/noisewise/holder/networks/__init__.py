"""Bayesian networks: family counts over the rows, and the mechanisms that may publish of them."""

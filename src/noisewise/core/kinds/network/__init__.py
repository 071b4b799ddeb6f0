"""Bayesian networks: the graph, what can be published about it, the Release."""

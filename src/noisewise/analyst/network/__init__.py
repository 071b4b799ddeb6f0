"""Posteriors of Bayesian networks from network Releases."""

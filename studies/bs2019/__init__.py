"""Bernstein and Sheldon (2019): Bayesian linear regression."""

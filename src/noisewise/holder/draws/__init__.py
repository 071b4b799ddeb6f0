"""Posterior sampling of a linear regression: the law, its privacy, and exact draws from it."""

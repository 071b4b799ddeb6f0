"""Logistic and Poisson regressions from Releases of scores and information."""

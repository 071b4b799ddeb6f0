"""Experiments on simulated data. Not part of the package: it imports nothing from here."""

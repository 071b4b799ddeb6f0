"""Inference from Releases. Nothing here can reach a row."""

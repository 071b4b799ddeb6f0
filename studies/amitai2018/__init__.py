"""Amitai and Reiter (2018): summaries of blocks."""

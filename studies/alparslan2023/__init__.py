"""Alparslan, Yıldırım and Birbil (2023): several holders."""

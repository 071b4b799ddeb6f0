"""`exact`: NUTS on the collapsed posterior of the latent statistics; one algorithm, one folder."""

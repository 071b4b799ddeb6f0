"""The noise-aware generative models, as log densities and moments."""

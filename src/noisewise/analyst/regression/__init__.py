"""Linear regression from noisy second moments: columns, priors, methods, a Posterior."""

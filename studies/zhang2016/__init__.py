"""Zhang, Rubinstein and Dimitrakakis (2016): Bayesian networks."""

"""Private rounds that find where the data are: all of it a function of what was published.

A first measurement in the public bounds gives a rough centre and spread. Every further round moves
the numbers into coordinates in which, by all that is published, they have centre 0 and spread 1,
forces them into a ball there, and publishes noisy second moments that need far less noise. Nothing
here sees a row: the holder asks what to publish next, and whoever reads a Release can ask the same.

`transform` is the public map into a round's coordinates, `estimate` what all rounds together say
about the moments, `tail` what the histogram of far rows says about the clipping, and `plan` decides
on what comes next.

References
----------
Biswas, Dong, Kamath and Ullman (2020), CoinPress: practical private mean and covariance estimation,
    arXiv:2006.06618.
"""

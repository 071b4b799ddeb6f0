"""The lab: simulated data only. Here alone may a generator be injected."""

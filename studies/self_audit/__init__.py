"""Every mechanism of noisewise under audit, and broken ones that must be caught."""

"""Whether default intervals hold fixed truths, whatever the data look like."""

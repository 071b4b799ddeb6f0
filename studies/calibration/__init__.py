"""Whether intervals cover as often as they say."""

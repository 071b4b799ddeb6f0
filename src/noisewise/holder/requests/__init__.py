"""What a holder can ask to publish: one file a kind, with its checks and its words."""

"""The public vocabulary: metadata and arithmetic only, no rows and no random numbers."""

"""The only code that ever sees a row."""

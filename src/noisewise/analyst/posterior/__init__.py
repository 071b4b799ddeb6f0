"""What inference gives: one base, one file a kind, one file format; imports no report."""

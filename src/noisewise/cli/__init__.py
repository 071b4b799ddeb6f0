"""The command line: holder commands and analyst commands."""

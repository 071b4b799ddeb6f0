"""What a Release will be worth, before it is paid for."""

"""What starts a driver somewhere, follows it and ends it."""

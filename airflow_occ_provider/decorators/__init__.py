"""Task decorators of this provider."""

"""What the writers of a table do to each other at one moment."""

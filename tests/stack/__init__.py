"""The production stack of ``docker/``, outside of containers."""

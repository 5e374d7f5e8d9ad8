"""Pure: what a driver's log says of its writes, its conflicts and its end."""

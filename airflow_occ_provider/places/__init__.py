"""Where the drivers of a task run: places that are found by their entry points."""

"""The queue's store in one object of an object store, or one file."""

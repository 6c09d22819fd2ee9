"""The references held against a library that nobody of the course wrote: `make test-peers`."""

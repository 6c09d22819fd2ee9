"""Submissions that want more than they are worth, or want to do harm, and broken ones: `make test-attacks`."""

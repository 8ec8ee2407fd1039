"""Attacks that can fail: each takes numbers keyed by sample id and gives scores of which higher means "was a member"."""

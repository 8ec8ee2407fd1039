"""Membership attacks: each scores how likely it is that a sample was a member of the training set."""

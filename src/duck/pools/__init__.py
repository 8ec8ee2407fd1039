"""Pools: many models trained on random subsets, which attacks compare with."""

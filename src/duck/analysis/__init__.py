"""What changed inside a model: its feature space, what it looks at, and whether a bias is gone."""

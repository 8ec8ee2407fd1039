"""What changed inside a model: its feature space, its attributions, and a planted bias."""

"""Training: the one training loop, the order of batches, CUDA graphs, several models at once."""

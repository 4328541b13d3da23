"""Training within a budget, checkpoints that continue a run, and CUDA graphs: for forecasters and for games."""

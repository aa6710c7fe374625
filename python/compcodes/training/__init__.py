"""Learning codebooks: the training loop, its losses and encoders, and how their parameters are chosen."""

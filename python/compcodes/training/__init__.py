"""Learning codebooks: the training loop, the losses and encoders it takes, and how their parameters are chosen."""

"""Training: losses, loss scale, optimizer, the compiled step, checkpoints and the loop."""

"""Opens checkpoints as models, writes, averages and inspects them."""

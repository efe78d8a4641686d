"""What turns one model into another."""

"""What other libraries made, taken over."""

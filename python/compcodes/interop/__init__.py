"""Taking over what other libraries made."""

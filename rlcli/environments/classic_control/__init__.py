"""Classic control: small mechanical systems, by their textbook equations."""

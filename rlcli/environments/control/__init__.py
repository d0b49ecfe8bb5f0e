"""Control: small bodies that are moved by forces."""

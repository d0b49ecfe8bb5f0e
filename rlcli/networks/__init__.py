"""Networks: torsos, heads, and the functions that they make together."""

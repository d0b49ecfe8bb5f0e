"""Networks: torsos, recurrent cores and heads, and the functions that combine them.

Belongs here: functions of observations or features, and the part `network`.
May import: distributions, and the ground.

`Network.apply` returns the carry after *each* step, so that v(next_obs) is one batched
step from these carries. It resets the carry where `first`. Feed-forward networks carry
`()`. A target network has its own carry, unrolled from the same initial carry. Burn-in
steps have weight 0 and receive no gradient (`updaters.burn_in`); the steps after them
start from the carry that the burn-in reached.

`Network.apply` draws noise from its key; without a key there is no noise, and implicit
quantile networks use mid-points as fractions. A policy's `explore` passes a key to the
network, its `exploit` does not. Dropout is noise of the same kind, for functions that
predict returns (`Head.predicts_returns`).
"""

"""Model-based learning: transition models and planning.

Belongs here: learned and known models, value learning with them, MuZero.
May import: the shared modules of updaters, and what updaters may import.

A transition model predicts, for an action, a set of outcomes with probabilities: all
states, sampled states, the most likely state, or the result of the environment's own
step. One function computes action values from outcomes and a state critic, and offers
them to policies like other action values. Updaters that plan with the environment's own
step name the part `simulator`: one environment, if its observations are the agent's;
the wrapper `expose_state` adds the state to the observation.

A search is a policy, and its results are extras of the step. The search's value of the
next observation is the best estimate for `next_obs`: the updater passes it to tracers
as `carry`, which moves with `next_obs`, so any tracer may bootstrap from it. A search
discounts with `gamma`, which `build` takes from the tracer and offers to policies.
"""

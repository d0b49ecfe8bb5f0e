"""Off-policy actor-critic: policies that maximize learned action values.

Belongs here: DDPG, TD3, SAC and its successors, and their shared core.
May import: the shared modules of updaters, and what updaters may import.

DDPG, TD3 and SAC share one policy objective, Σ π(a|s) (τ log π(a|s) − q(s, a)). An
actor defines the actions in the sum: all actions where they are finite, or one sampled
action with its gradient. So DDPG, TD3 and SAC, for Box and Discrete spaces, are the
same file with different `OffPolicyOptions`: TQC is how critics are reduced, in targets
and for the policy, CrossQ how they are predicted.
"""

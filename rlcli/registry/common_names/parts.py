"""Common names of parts, such as algorithms: groups of names, with one hint each."""

from __future__ import annotations

from rlcli.registry.common_names.recipe_keys import EPSILON_SCHEDULE

_OFFLINE = (
    "rlcli's offline algorithms are `cql`, `iql`, `awac`, `td3_bc` and "
    "`behaviour_cloning`"
)
_MULTI_AGENT = (
    "rlcli's only multi-agent algorithm is IPPO with shared weights: "
    "`{environment: {name: pettingzoo/mpe2/simple_spread_v3, num_envs: 24}, "
    "updater: ppo}`"
)
_RND = "random network distillation is a reward: `intrinsic_reward: rnd`"
_OTHER_BONUSES = (
    "rlcli's exploration bonus is random network distillation: `intrinsic_reward: rnd`"
)
_HEAD = "that is the head of a network: `network: {name: mlp, head: %s}`"
_MEMORY = "`network: {name: mlp, memory: %s}`"
_WRAPPED = "`environment: {name: CartPole-v1, wrappers: [%s]}`"
_ATARI = "`environment: gymnasium/ALE/Pong-v5` includes Atari's standard preprocessing"

UPDATERS = {
    # Q-learning
    "ddqn": "`updater: double_dqn`",
    "d3qn dueling dueling_double_dqn dueling_ddqn": "`updater: dueling_dqn`",
    "deep_q deep_q_learning deep_q_network nature_dqn nfq": "`updater: dqn`",
    "qr qr_dqn_agent quantile_dqn quantile_regression quantile_regression_dqn": (
        "`updater: qr_dqn`"
    ),
    "categorical_dqn distributional_dqn": "`updater: c51`",
    "implicit_quantile implicit_quantile_network": "`updater: iqn`",
    "fqf": "FQF is not supported; IQN is closest: `updater: iqn`",
    "noisy_dqn noisy_net": (
        "`network: {name: mlp, head: {noisy: true}}`; for a recipe see "
        "`rlcli show dqn_noisy_cartpole`"
    ),
    "per per_dqn prioritized_dqn dqn_per": (
        "`replay: prioritized` with `updater: dqn`; for a recipe see "
        "`rlcli show dqn_per_cartpole`"
    ),
    "n_step_dqn multi_step_dqn": (
        "`tracer: {name: n_step, n: 3}` with `updater: dqn`; for a recipe see "
        "`rlcli show dqn_n_step_cartpole`"
    ),
    "mdqn munchausen_dqn m_iqn munchausen_iqn": (
        "`updater: munchausen` with `replay: uniform`; for a recipe see "
        "`rlcli show dqn_munchausen_cartpole`"
    ),
    "clipped_dqn clipped_double_dqn": (
        "`updater: clipped_double_q_learning` with `replay: uniform`"
    ),
    "r2d2": "R2D2 is a recipe: `rlcli show r2d2_memory_chain`",
    "drqn recurrent_dqn": (
        "R2D2 is recurrent Q-learning, and a recipe: `rlcli show r2d2_memory_chain`"
    ),
    "apex apex_dqn": (
        "Ape-X's distributed actors are not supported; closest is "
        "`updater: double_dqn` with `replay: prioritized` and several environments: "
        "`environment: {name: CartPole-v1, num_envs: 8}`"
    ),
    "ngu agent57 bbf der spr drq curl": (
        "it is not supported; Rainbow and R2D2 are closest: `updater: rainbow`, "
        "`rlcli show r2d2_memory_chain`"
    ),
    "bootstrapped_dqn": "bootstrapped DQN is not supported; closest: `updater: dqn`",
    "sql soft_q soft_dqn": "`updater: soft_q_learning`",
    "q tabular_q tabular_q_learning": "`updater: q_learning` with `network: table`",
    "double_q": "`updater: double_q_learning`",
    "td td0 td_learning": "`updater: simple_td`",
    "td_lambda sarsa_lambda": (
        "`updater: sarsa`; λ is an option of the tracer: "
        "`tracer: {name: lambda_return, lambda: 0.9}`"
    ),
    "q_lambda": (
        "`updater: pqn`; λ is an option of the tracer: "
        "`tracer: {name: lambda_return, lambda: 0.65}`"
    ),
    "mc monte_carlo": (
        "`tracer: monte_carlo` with `replay: episodes`; the policy gradient with whole "
        "returns is `updater: reinforce`"
    ),
    # Policy gradients
    "pg vpg policy_gradient": "`updater: vanilla_pg`",
    "ac actor_critic advantage_actor_critic": "`updater: a2c`",
    "a3c async_actor_critic": (
        "A3C is asynchronous; its synchronous form is A2C: `updater: a2c`"
    ),
    "ppo2 ppo_clip ppo_continuous ppo_discrete proximal_policy_optimization": (
        "`updater: ppo`, for any action space"
    ),
    "ppo_lstm recurrent_ppo ppo_recurrent ppo_rnn": (
        "`updater: {name: ppo, sequence: 16}` with "
        "`network: {name: mlp, memory: lstm}`; for a recipe see "
        "`rlcli show ppo_memory_chain`"
    ),
    "maskable_ppo": "`updater: ppo` applies the action mask of any environment",
    "trpo": "TRPO is not supported; PPO is its successor: `updater: ppo`",
    "acktr npg natural_pg natural_policy_gradient": (
        "natural gradients are not supported; PPO is closest: `updater: ppo`"
    ),
    "ppg phasic_policy_gradient": (
        "PPG is not supported; PPO is closest: `updater: ppo`"
    ),
    "appo": "APPO is not supported; `updater: impala` and `updater: ppo` are closest",
    "vtrace_ac": "`updater: v_trace`",
    "acer": (
        "ACER is not supported; V-trace with a replay is closest: `updater: v_trace` "
        "with `replay: uniform`"
    ),
    "mpo vmpo dmpo": (
        "MPO is not supported; closest is "
        "`updater: {name: cross_entropy, filter: exponential}`"
    ),
    "sil self_imitation crr": (
        "`updater: {name: cross_entropy, filter: exponential}` weights actions by "
        "their advantage; self-imitation is "
        "`updater: {name: cross_entropy, filter: positive}`"
    ),
    # Off-policy actor-critic
    "discrete_sac sac_discrete sacd": (
        "`updater: sac` with Discrete actions is discrete SAC"
    ),
    "sac_continuous sac_v1 sac_v2 soft_actor_critic": "`updater: sac`",
    "dsac distributional_sac": (
        "DSAC is `updater: sac` with a quantile head: `rlcli show dsac_pendulum`"
    ),
    "truncated_quantile_critics": "`updater: tqc`",
    "simba": "SimBa is a network, for any updater: `rlcli show simba_pendulum`",
    "droq dropout_q": "DroQ is a recipe: `rlcli show droq_pendulum`",
    "d4pg": (
        "D4PG is `updater: ddpg` with a categorical head, as in "
        "`network: {policy: mlp, critic: {name: mlp, head: categorical}}`"
    ),
    "td4": "TD4 is a recipe: `rlcli show td4_pendulum`",
    "dpg": "`updater: deterministic_pg`",
    # Evolution
    "es openai_es evolution_strategies evolution_strategy": "`updater: open_es`",
    "ars pgpe snes xnes augmented_random_search": (
        "it is not supported; OpenAI-ES is closest: `updater: open_es`"
    ),
    "ga genetic genetic_algorithm neuroevolution": "`updater: simple_ga`",
    "neat map_elites": "it is not supported; `updater: simple_ga` is closest",
    "cem cross_entropy_method": (
        "the cross-entropy method is not supported; `updater: cma_es` is closest"
    ),
    # Models and planning
    "gumbel_muzero": "`updater: muzero`, with `policy: gumbel_muzero`",
    "alphazero efficientzero sampled_muzero stochastic_muzero mcts": (
        "it is not supported; Gumbel MuZero is closest: `updater: muzero`"
    ),
    "dreamer dreamerv2 dreamerv3 planet": (
        "Dreamer is not supported; rlcli's agents with learned models are "
        "`updater: muzero` and `updater: model_learning`"
    ),
    "dyna dyna_q mbpo pets td_mpc td_mpc2 world_models": (
        "it is not supported; `updater: model_learning` learns a model and looks one "
        "step ahead"
    ),
    # Other settings
    "bc behavior_cloning": "`updater: behaviour_cloning`",
    "discrete_cql cql_h": "`updater: cql`",
    "implicit_q_learning": "`updater: iql`",
    "td3_plus_bc": "`updater: td3_bc`",
    "dagger gail bcq bear edac decision_transformer": _OFFLINE,
    "maddpg mappo ippo qmix vdn coma": _MULTI_AGENT,
    "rnd random_network_distillation": _RND,
    "icm count_based curiosity": _OTHER_BONUSES,
    "her hindsight_experience_replay": (
        "hindsight is a replay: `replay: hindsight`; for a recipe see "
        "`rlcli show her_bit_flip`"
    ),
    "ucb bandit thompson_sampling": (
        "bandits are environments here: `environment: BernoulliBandit-v0`, with any "
        "updater"
    ),
    "random": "`policy: random`, with any updater",
}
POLICIES = {
    "eps_greedy e_greedy greedy eps": (
        "`policy: epsilon_greedy`; greedy is "
        "`policy: {name: epsilon_greedy, epsilon: 0}`"
    ),
    "linear_schedule linear_decay": EPSILON_SCHEDULE,
    "softmax": "`policy: boltzmann` for action values, `policy: sampled` for a "
    "distribution",
    "stochastic categorical normal squashed_gaussian tanh_normal diagonal_gaussian": (
        "`policy: sampled`"
    ),
    "gaussian normal_action_noise action_noise": "`policy: gaussian_noise`",
    "ou ou_noise ornstein_uhlenbeck_action_noise": "`policy: ornstein_uhlenbeck`",
    "sde gsde": "`policy: state_dependent`",
    "uniform": "`policy: random`",
    "mcts search": "`policy: gumbel_muzero`, for `updater: muzero`",
    "noisy noisy_net parameter_noise": (
        "noise in the parameters belongs to the network: "
        "`network: {name: mlp, head: {noisy: true}}`"
    ),
    "ucb thompson": "it is not supported; `policy: boltzmann` is closest",
    "mlp_policy mlp": "the network has its own section: `network: mlp`",
    "cnn_policy cnn": "the network has its own section: `network: cnn`",
    "multi_input_policy": (
        "the network has its own section: `network: mlp` reads Dict observations"
    ),
    "mlp_lstm_policy lstm": "the network has its own section: " + _MEMORY % "lstm",
    "actor_critic": "the algorithm is the updater: `updater: a2c`",
}
NETWORKS = {
    "dense fc ffn feedforward fully_connected mlp_torso mlp_policy": "`network: mlp`",
    "conv convnet": "`network: cnn`",
    "nature_cnn nature atari atari_cnn cnn_policy": (
        "`network: {name: cnn, preset: atari}`"
    ),
    "minatar minatar_cnn": "`network: {name: cnn, preset: minatar}`",
    "resnet impala impala_cnn simba bro": "`network: residual`",
    "lstm mlp_lstm": "a memory is an option of the network: " + _MEMORY % "lstm",
    "gru rnn recurrent": "a memory is an option of the network: " + _MEMORY % "gru",
    "transformer attention gtrxl": (
        "transformers are not supported; a memory is closest: " + _MEMORY % "gru"
    ),
    "tabular lookup": "`network: table`",
    "dueling": _HEAD % "{dueling: true}",
    "noisy noisy_net": _HEAD % "{noisy: true}",
    "categorical c51": _HEAD % "categorical",
    "quantile qr": _HEAD % "quantile",
    "implicit_quantile iqn": _HEAD % "implicit_quantile",
}
MEMORIES = {
    "rnn": "did you mean `gru` or `lstm`?",
    "transformer gtrxl attention s4 s5 mamba": (
        "it is not supported; use `gru` or `lstm`"
    ),
}
TRACERS = {
    "gae": (
        "GAE is the λ-return minus the value: "
        "`tracer: {name: lambda_return, lambda: 0.95}`"
    ),
    "td_lambda q_lambda lambda peng": "`tracer: {name: lambda_return, lambda: 0.95}`",
    "td td0 one_step single_step bootstrap": "`tracer: {name: n_step, n: 1}`",
    "mc returns reward_to_go": (
        "`tracer: monte_carlo` with `replay: episodes`, or without a replay "
        "`tracer: {name: lambda_return, lambda: 1}`"
    ),
    "tree_backup importance_sampling": (
        "it is not supported; `tracer: retrace` is closest for action values, "
        "`tracer: v_trace` for state values"
    ),
}
REPLAYS = {
    "per priority prioritised": "`replay: prioritized`",
    "replay buffer replay_buffer er experience_replay fifo ring reverb": (
        "`replay: uniform`"
    ),
    "sequence r2d2 recurrent": "`replay: sequences`",
    "her her_replay_buffer hindsight_experience_replay": "`replay: hindsight`",
    "none rollout on_policy": (
        "without a replay the agent learns from each unroll: `replay: null`"
    ),
    "n_step": "that is a tracer: `tracer: {name: n_step, n: 3}`",
}
OPTIMIZERS = {
    "momentum sgd_momentum": "`optimizer: {name: sgd, momentum: 0.9}`",
    "nadam": "`optimizer: {name: adam, nesterov: true}`",
    "torch_optim_adam optax_adam": "`optimizer: adam`",
    "rmsprop_tf_like": "`optimizer: rmsprop`",
    "muon shampoo kfac lookahead soap": (
        "it is not supported; see `rlcli list optimizers`"
    ),
}
WRAPPERS = {
    "frame_stack_observation vec_frame_stack": _WRAPPED % "frame_stack",
    "flatten_observation flatten_observation_wrapper": _WRAPPED % "flatten",
    "one_hot_observation one_hot_obs": _WRAPPED % "one_hot",
    "normalize_observation vec_normalize": (
        "`normalize: {observation: true}` is a section of the recipe"
    ),
    "normalize_reward": "`normalize: {reward: true}` is a section of the recipe",
    "transform_reward reward_scaling": _WRAPPED % "{name: scale_reward, factor: 0.1}",
    "time_limit": "`environment: {name: CartPole-v1, time_limit: 200}`",
    "time_aware_observation": (
        "it is not supported; closest is " + _WRAPPED % "previous"
    ),
    "max_and_skip frame_skip": _WRAPPED % "{name: action_repeat, times: 4}",
    "episodic_life episodic_life_env": (
        "`environment: {name: gymnasium/ALE/Breakout-v5, "
        "atari: {terminal_on_life_loss: true}}`"
    ),
    "rescale_action clip_action normalize_action": (
        "`environment: {name: Pendulum-v1, wrappers: [real_actions]}` maps unbounded "
        "actions to the Box"
    ),
    "atari_preprocessing atari_wrapper noop_reset fire_reset": _ATARI,
    "resize_observation grayscale_observation": _ATARI,
    "record_episode_statistics monitor log_wrapper": (
        "not needed: metrics contain returns and lengths of episodes"
    ),
    "record_video": "not needed: `rlcli render` renders a trained policy",
    "auto_reset": "not needed: environments reset automatically",
}
PREPROCESSING = {
    "normalize standardize": (
        "`normalize: {observation: true}` is a section of the recipe"
    ),
    "minmax rescale": "did you mean `scale`?",
    "transpose vec_transpose_image": "did you mean `channels_last`?",
    "stack": "did you mean `frame_stack`?",
    "diff differences": "did you mean `diff_transform`?",
    "grayscale resize crop": f"it is not supported; {_ATARI}",
}

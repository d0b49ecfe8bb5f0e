"""Common names of sections, options and heads: groups of names, with one hint each."""

from __future__ import annotations

EPSILON_SCHEDULE = (
    "`policy: {name: epsilon_greedy, epsilon: {from: 1.0, to: 0.05, over: 10_000}}`"
)
_LEARNING_RATE = "`optimizer: {learning_rate: 1e-3}`"
_CLIP_NORM = "`optimizer: {clip_norm: 0.5}`"

KINDS = {
    "agent agents algo algos algorithm algorithms learner": "did you mean `updater`?",
    "env envs": "did you mean `environment`?",
    "buffer buffers": "did you mean `replay`?",
    "heads": "did you mean `head`?",
    "torso torsos model models": "did you mean `network`?",
    "exploration": "did you mean `policy`?",
    "returns": "did you mean `tracer`?",
}
SECTIONS = {
    "env envs environments task": "`environment: CartPole-v1`",
    "agent algo algos algorithm algorithms method learner loss": "`updater: ppo`",
    "model net networks architecture torso": "`network: mlp`",
    "memory buffer replay_buffer": "`replay: uniform`",
    "exploration explorer behavior_policy actor": "`policy: epsilon_greedy`",
    "returns return gae": "`tracer: n_step`",
    "target target_network": "`updater: {name: dqn, target: {polyak: 0.005}}`",
    "optim optimizers optimiser": "`optimizer: adam`",
    "training trainer run experiment": "`train: {steps: 50_000}`",
    "eval evaluate evaluation": "`train: {evaluate: {every: 10_000, episodes: 20}}`",
    "log logging logger": "`train: {log: {every: 1_000}}`",
    "checkpoint checkpoints checkpointing": "`train: {checkpoint: {every: 10_000}}`",
    "wrappers": "`environment: {name: CartPole-v1, wrappers: [previous]}`",
    "preprocess preprocessing": "`network: {preprocess: [one_hot]}`",
    "head": "`network: {head: {dueling: true}}`",
    "name description notes metadata tags": "`extra: {}` holds data of your own",
    "plugins imports": (
        "a part of your own is named where it is used, by its import path, as in "
        "`module:attribute`, or by its entry point"
    ),
}
OPTIONS = {
    "gamma discount discount_factor": "γ belongs to the tracer: "
    "`tracer: {gamma: 0.99}`",
    "gae_lambda lambda lam td_lambda": "`tracer: {name: lambda_return, lambda: 0.95}`",
    "lr learning_rate step_size alpha_lr": _LEARNING_RATE,
    "max_grad_norm grad_clip gradient_clip gradient_clipping": _CLIP_NORM,
    "batch_size": (
        "the size of a batch belongs to the replay: "
        "`replay: {batch_size: 32}`; without a replay, see "
        "`updater: {name: ppo, minibatches: 4}`"
    ),
    "buffer_size buffer_capacity replay_size replay_capacity memory_size": (
        "`replay: {capacity: 50_000}`"
    ),
    "learning_starts warmup_steps min_replay_size min_buffer_size": (
        "`train: {start: 1_000}`"
    ),
    "train_freq train_frequency gradient_steps update_every utd utd_ratio": (
        "`train: {updates: {per_step: 0.25}}`"
    ),
    "target_update target_update_interval target_update_freq target_update_period "
    "target_network_frequency target_network_update_freq": (
        "`updater: {name: dqn, target: {every: 200}}`"
    ),
    "tau polyak": "`updater: {name: dqn, target: {polyak: 0.005}}`",
    "epsilon eps eps_start eps_end eps_decay exploration exploration_fraction "
    "exploration_initial_eps exploration_final_eps epsilon_start epsilon_end "
    "epsilon_decay": EPSILON_SCHEDULE,
    "ent_coef ent_coeff entropy_coef entropy_coeff entropy_cost entropy_weight "
    "entropy_bonus": (
        "`updater: {name: ppo, regularizers: [{name: entropy, weight: 0.01}]}`, or "
        "`updater: {name: sac, temperature: 0.2}`"
    ),
    "vf_coef vf_coeff value_coef value_cost value_loss_coef critic_coef": (
        "`updater: {name: ppo, value_weight: 0.5}`"
    ),
    "clip_range clip_coef clip_eps clip_epsilon clip_param clipping_epsilon": (
        "`updater: {name: ppo, clip_ratio: 0.2}`"
    ),
    "clip_range_vf clip_vloss vf_clip": "`updater: {name: ppo, value_clip_ratio: 0.2}`",
    "target_kl": "`updater: {name: ppo, kl_limit: 0.02}`",
    "norm_adv normalize_adv": "`updater: {name: ppo, normalize_advantage: true}`",
    "n_epochs num_epochs update_epochs": "`updater: {name: ppo, epochs: 4}`",
    "n_minibatches num_minibatches": "`updater: {name: ppo, minibatches: 4}`",
    "n_steps num_steps rollout_length rollout_steps unroll_length horizon": (
        "the steps between two updates are `train: {unroll: 128}`; the steps of an "
        "n-step return are `tracer: {name: n_step, n: 3}`"
    ),
    "total_timesteps timesteps num_timesteps total_steps max_steps num_frames frames "
    "num_iterations": "`train: {steps: 50_000}`",
    "n_envs num_environments num_workers num_actors": (
        "`environment: {name: CartPole-v1, num_envs: 8}`"
    ),
    "max_episode_steps max_episode_length": (
        "`environment: {name: CartPole-v1, time_limit: 200}`"
    ),
    "net_arch hidden hidden_sizes hidden_layers hidden_dims hidden_size hidden_units": (
        "`network: {layers: [64, 64]}`"
    ),
    "n_critics num_critics num_qs": "`updater: {name: sac, critics: 2}`",
    "policy_delay policy_frequency": "`updater: {name: td3, delay: 2}`",
    "policy_noise target_policy_noise": "`updater: {name: td3, smoothing: 0.2}`",
    "ent_target": "`updater: {name: sac, target_entropy: null}`",
    "alpha_init autotune": (
        "`updater: {name: sac, temperature: learned, initial_temperature: 1.0}`"
    ),
    "n_atoms num_atoms v_min v_max": (
        "`network: {head: {name: categorical, atoms: 51, high: 10}}`"
    ),
    "n_quantiles num_quantiles": ("`network: {head: {name: quantile, quantiles: 51}}`"),
    "double double_q": "`updater: double_dqn`",
    "dueling": "`network: {head: {dueling: true}}`",
    "noisy": "`network: {head: {noisy: true}}`",
    "prioritized prioritized_replay per": "`replay: prioritized`",
    "n_step": "`tracer: {name: n_step, n: 3}`",
    "lstm recurrent": "`network: {memory: lstm}`",
    "use_sde sde": "`policy: state_dependent`",
    "seed random_seed": "`train: {seed: 0}`",
    "device": "`train: {devices: 1}`",
    "log_interval log_freq log_every": "`train: {log: {every: 1_000}}`",
    "eval_freq eval_interval eval_every eval_frequency": (
        "`train: {evaluate: {every: 10_000}}`"
    ),
    "save_freq save_interval checkpoint_freq": (
        "`train: {checkpoint: {every: 10_000}}`"
    ),
    "render_mode": "`rlcli render` renders any environment, recipe or run",
}
HEADS = {
    "c51 distributional": "did you mean `categorical`?",
    "qr qr_dqn quantile_regression": "did you mean `quantile`?",
    "iqn": "did you mean `implicit_quantile`?",
    "dueling": "`network: {head: {dueling: true}}`",
    "noisy": "`network: {head: {noisy: true}}`",
    "mean value linear": "did you mean `scalar`?",
}

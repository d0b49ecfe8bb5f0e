"""Hints for common names: groups of names, with one hint each.

Only names that many people type, from papers and from Stable-Baselines3, RLlib, CleanRL
and Gymnasium.
"""

from collections.abc import Mapping

_EPSILON = (
    "`policy: {name: epsilon_greedy, epsilon: {from: 1.0, to: 0.05, over: 10_000}}`"
)
_MEMORY = "a memory is an option of the network: `network: {name: mlp, memory: gru}`"
_UNSUPPORTED = "it is not supported; closest is %s"
_WRAPPED = "`environment: {name: CartPole-v1, wrappers: [%s]}`"
_ATARI = "`environment: gymnasium/ALE/Pong-v5` includes Atari's standard preprocessing"

_UPDATERS = {
    "ddqn": "`updater: double_dqn`",
    "dueling d3qn": "`updater: dueling_dqn`",
    "categorical_dqn distributional_dqn": "`updater: c51`",
    "per prioritized_dqn": "`replay: prioritized` with `updater: dqn`",
    "noisy_dqn noisy_net": "`network: {name: mlp, head: {noisy: true}}`",
    "n_step_dqn": "`tracer: {name: n_step, n: 3}` with `updater: dqn`",
    "r2d2 drqn": "R2D2 is a recipe: `rlcli show r2d2_memory_chain`",
    "apex": _UNSUPPORTED % "`updater: double_dqn` with `replay: prioritized`",
    "monte_carlo": "`tracer: monte_carlo` with `replay: episodes`",
    "pg vpg policy_gradient": "`updater: vanilla_pg`",
    "actor_critic a3c": "`updater: a2c`",
    "maskable_ppo": "`updater: ppo` applies the action mask of any environment",
    "recurrent_ppo ppo_lstm": (
        "`updater: {name: ppo, sequence: 16}` with `network: {name: mlp, memory: lstm}`"
    ),
    "trpo appo ppg acktr": _UNSUPPORTED % "`updater: ppo`",
    "acer": _UNSUPPORTED % "`updater: v_trace` with `replay: uniform`",
    "mpo": _UNSUPPORTED % "`updater: {name: cross_entropy, filter: exponential}`",
    "soft_actor_critic discrete_sac": "`updater: sac`, for any action space",
    "simba": "SimBa is a network, for any updater: `rlcli show simba_pendulum`",
    "droq": "DroQ is a recipe: `rlcli show droq_pendulum`",
    "d4pg": (
        "D4PG is `updater: ddpg` with a categorical head, as in "
        "`network: {policy: mlp, critic: {name: mlp, head: categorical}}`"
    ),
    "es openai_es ars": "`updater: open_es`",
    "ga": "`updater: simple_ga`",
    "cem": _UNSUPPORTED % "`updater: cma_es`",
    "alphazero mcts": _UNSUPPORTED % "Gumbel MuZero: `updater: muzero`",
    "dreamer dreamerv3 mbpo dyna": _UNSUPPORTED % "`updater: model_learning`",
    "bc behavior_cloning": "`updater: behaviour_cloning`",
    "dagger gail bcq decision_transformer": (
        "rlcli's offline algorithms are `cql`, `iql`, `awac`, `td3_bc` and "
        "`behaviour_cloning`"
    ),
    "ippo mappo qmix": (
        "rlcli's only multi-agent algorithm is IPPO with shared weights: "
        "`{environment: {name: pettingzoo/mpe2/simple_spread_v3, num_envs: 24}, "
        "updater: ppo}`"
    ),
    "rnd icm curiosity": (
        "random network distillation is a reward: `intrinsic_reward: rnd`"
    ),
    "her": "hindsight is a replay: `replay: hindsight`",
    "random": "`policy: random`, with any updater",
}
_POLICIES = {
    "eps_greedy greedy": "`policy: epsilon_greedy`",
    "softmax": "`policy: boltzmann` for action values, `policy: sampled` for a "
    "distribution",
    "stochastic categorical normal": "`policy: sampled`",
    "gaussian action_noise": "`policy: gaussian_noise`",
    "ou ou_noise": "`policy: ornstein_uhlenbeck`",
    "sde gsde": "`policy: state_dependent`",
    "mlp_policy cnn_policy multi_input_policy": (
        "the network has its own section: `network: mlp`"
    ),
}
_NETWORKS = {
    "dense mlp_policy": "`network: mlp`",
    "conv nature_cnn cnn_policy": "`network: cnn`",
    "resnet impala": "`network: residual`",
    "lstm gru rnn": _MEMORY,
    "transformer attention": f"transformers are not supported; {_MEMORY}",
    "tabular": "`network: table`",
    "dueling": "`network: {name: mlp, head: {dueling: true}}`",
    "noisy": "`network: {name: mlp, head: {noisy: true}}`",
}
_TRACERS = {
    "gae td_lambda": "`tracer: {name: lambda_return, lambda: 0.95}`",
    "td td0": "`tracer: {name: n_step, n: 1}`",
    "mc returns": "`tracer: monte_carlo` with `replay: episodes`",
}
_REPLAYS = {
    "per priority": "`replay: prioritized`",
    "replay_buffer buffer": "`replay: uniform`",
    "her": "`replay: hindsight`",
    "none rollout": "without one the agent learns from each unroll: `replay: null`",
    "n_step": "that is a tracer: `tracer: {name: n_step, n: 3}`",
}
_WRAPPERS = {
    "normalize_observation vec_normalize normalize_reward": (
        "`normalize: {observation: true, reward: true}` is a section of the recipe"
    ),
    "frame_stack_observation vec_frame_stack": _WRAPPED % "frame_stack",
    "flatten_observation": _WRAPPED % "flatten",
    "transform_reward": _WRAPPED % "{name: scale_reward, factor: 0.1}",
    "frame_skip max_and_skip": _WRAPPED % "{name: action_repeat, times: 4}",
    "time_limit": "`environment: {name: CartPole-v1, time_limit: 200}`",
    "atari_preprocessing atari_wrapper grayscale_observation": _ATARI,
    "monitor record_episode_statistics": (
        "not needed: metrics contain returns and lengths of episodes"
    ),
    "record_video": "not needed: `rlcli render` renders a trained policy",
}
_COMMANDS = {
    "evaluate test": "`rlcli eval` evaluates a trained policy",
    "enjoy play video record": "`rlcli render` renders a trained policy",
    "learn fit run": "`rlcli train` trains the agent of a recipe",
    "continue": "`rlcli resume` continues a run",
    "validate lint": "`rlcli check` checks recipes without training them",
    "describe info": "`rlcli show` shows a recipe, or the options of a part",
    "ls envs": "`rlcli list` lists parts and recipes",
    "tune optimize": "`rlcli sweep` tunes hyperparameters of a recipe",
}
_OPTIONS = {
    "query select": "did you mean `--filter`? It takes `=`, `!=`, `<`, `>=` …",
    "metric": "did you mean `--y`?",
    "tex latex csv markdown html pdf": "`--output` takes the name of a file, whose "
    "suffix is the format",
}
_KINDS = {
    "agent algorithm algorithms algos": "did you mean `updater`?",
    "env envs": "did you mean `environment`?",
    "buffer": "did you mean `replay`?",
    "model": "did you mean `network`?",
}
_HEADS = {
    "c51": "did you mean `categorical`?",
    "qr": "did you mean `quantile`?",
    "iqn": "did you mean `implicit_quantile`?",
    "dueling": "`network: {head: {dueling: true}}`",
    "noisy": "`network: {head: {noisy: true}}`",
}
_KEYS = {  # of sections and of options
    "env envs": "`environment: CartPole-v1`",
    "agent algo algorithm": "`updater: ppo`",
    "model net policy_kwargs features_extractor": "`network: mlp`",
    "memory buffer replay_buffer": "`replay: uniform`",
    "exploration": "`policy: epsilon_greedy`",
    "target target_network": "`updater: {name: dqn, target: {polyak: 0.005}}`",
    "training": "`train: {steps: 50_000}`",
    "eval evaluate eval_env eval_callback best_model": (
        "`train: {evaluate: {every: 10_000, episodes: 20}}`"
    ),
    "log logging": "`train: {log: {every: 1_000}}`",
    "logger tracker wandb tensorboard mlflow": (
        "`train: {trackers: [tensorboard]}`; `rlcli list trackers` lists others"
    ),
    "checkpoint save_freq checkpoint_freq": ("`train: {checkpoint: {every: 10_000}}`"),
    "wrapper wrappers": (
        "`environment: {name: CartPole-v1, wrappers: [previous]}`; "
        "`rlcli list wrappers` lists others"
    ),
    "callback callbacks hook curriculum": (
        "`train: {hooks: []}` lists hooks of your own by import path, as in "
        "`module:attribute` (docs/python.md)"
    ),
    "success is_success success_rate infos info_keywords": (
        "`environment: {name: CartPole-v1, info: {success: last}}` logs a number of "
        "the info of each episode (docs/environments.md)"
    ),
    "recipes environments": "the file of a study has them: `rlcli study` trains it",
    "early_stopping stop_reward": "`train: {stop: {return: 475}}`",
    "initialization initializer weight_init ortho_init": (
        "`network: {init: orthogonal}`"
    ),
    "preprocess": "`network: {preprocess: [one_hot]}`",
    "normalize_obs norm_obs norm_reward": "`normalize: {observation: true}`",
    "reward_scale reward_shaping": _WRAPPED % "{name: scale_reward, factor: 0.1}",
    "domain_randomization randomize": (
        "`environment: {name: CartPole-v1, each: {gravity: {uniform: [8, 12]}}}`"
    ),
    "head": "`network: {head: {dueling: true}}`",
    "pretrained warm_start finetune transfer load load_path load_from "
    "restore_checkpoint_path": (
        "`init: runs/base` starts from what another run has learned "
        "(docs/guides/transfer.md)"
    ),
    "frozen freeze_layers": "`freeze: [policy/torso]`",
    "name notes tag tags project": (
        "`extra: {}` holds data of your own; options of `rlcli train` name and tag runs"
    ),
    "plugins imports": (
        "a part of your own is named where it is used, by its import path, as in "
        "`module:attribute`, or by its entry point"
    ),
    "gamma discount": "γ belongs to the tracer: `tracer: {gamma: 0.99}`",
    "gae_lambda lambda": "`tracer: {name: lambda_return, lambda: 0.95}`",
    "lr learning_rate": "`optimizer: {learning_rate: 1e-3}`",
    "schedule scheduler lr_schedule lr_scheduler anneal_lr": (
        "a number may follow a schedule, as in "
        "`optimizer: {learning_rate: {from: 1e-3, to: 0}}`"
    ),
    "max_grad_norm grad_clip": "`optimizer: {clip_norm: 0.5}`",
    "batch_size": (
        "the size of a batch belongs to the replay: `replay: {batch_size: 32}`; "
        "without a replay, see `updater: {name: ppo, minibatches: 4}`"
    ),
    "buffer_size replay_size": "`replay: {capacity: 50_000}`",
    "learning_starts warmup_steps": "`train: {start: 1_000}`",
    "train_freq train_frequency gradient_steps utd": (
        "`train: {updates: {per_step: 0.25}}`"
    ),
    "target_update_interval target_network_frequency": (
        "`updater: {name: dqn, target: {every: 200}}`"
    ),
    "tau polyak": "`updater: {name: dqn, target: {polyak: 0.005}}`",
    "epsilon exploration_fraction exploration_final_eps epsilon_decay": _EPSILON,
    "ent_coef entropy_coef entropy": (
        "`updater: {name: ppo, regularizers: [{name: entropy, weight: 0.01}]}`, or "
        "`updater: {name: sac, temperature: 0.2}`"
    ),
    "vf_coef value_coef": "`updater: {name: ppo, value_weight: 0.5}`",
    "clip_range clip_coef clip_eps": "`updater: {name: ppo, clip_ratio: 0.2}`",
    "target_kl": "`updater: {name: ppo, kl_limit: 0.02}`",
    "clip_obs": "`normalize: {observation: true, observation_clip: 10}`",
    "norm_adv": "`updater: {name: ppo, normalize_advantage: true}`",
    "n_epochs update_epochs": "`updater: {name: ppo, epochs: 4}`",
    "num_minibatches": "`updater: {name: ppo, minibatches: 4}`",
    "n_steps num_steps": (
        "the steps between two updates are `train: {unroll: 128}`; the steps of an "
        "n-step return are `tracer: {name: n_step, n: 3}`"
    ),
    "total_timesteps timesteps": "`train: {steps: 50_000}`",
    "n_envs vec_env workers": "`environment: {name: CartPole-v1, num_envs: 8}`",
    "max_episode_steps": "`environment: {name: CartPole-v1, time_limit: 200}`",
    "net_arch hidden_sizes hidden_dims": "`network: {layers: [64, 64]}`",
    "n_critics": "`updater: {name: sac, critics: 2}`",
    "policy_delay": "`updater: {name: td3, delay: 2}`",
    "target_policy_noise": "`updater: {name: td3, smoothing: 0.2}`",
    "autotune": "`updater: {name: sac, temperature: learned}`",
    "n_step": "`tracer: {name: n_step, n: 3}`",
    "use_sde": "`policy: state_dependent`",
    "seed": "`train: {seed: 0}`",
    "device": "`train: {devices: 1}`",
    "log_interval": "`train: {log: {every: 1_000}}`",
    "eval_freq": "`train: {evaluate: {every: 10_000}}`",
    "render_mode render video": "`rlcli render` renders any environment, recipe or run",
    "amp dtype": "`train: {precision: bfloat16}`",
}
_INITIALIZERS = {  # in place of a run
    "orthogonal fan_in xavier glorot kaiming he lecun normal uniform zeros random": (
        "initial weights are an option of the network: `network: {init: orthogonal}`"
    )
}
HINTS: Mapping[str, Mapping[str, str]] = {
    "updater": _UPDATERS,
    "policy": _POLICIES,
    "network": _NETWORKS,
    "tracer": _TRACERS,
    "replay": _REPLAYS,
    "wrapper": _WRAPPERS,
    "command": _COMMANDS,
    "option": _OPTIONS,
    "kind": _KINDS,
    "head": _HEADS,
    "key": _KEYS,
    "init": _INITIALIZERS,
}

"""Compiler options for programs whose tests spend most of their time compiling."""

# What `JAX_DISABLE_MOST_OPTIMIZATIONS` sets, here also for slow tests.
FAST_COMPILATION = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
}

"""XLA: the performance of compiled programs, and their use of the machine.

Belongs here: fusion barriers, random bits, packing, threads, the compilation cache.
May import: types and errors. Threads, pinning, switches and the cache import no JAX.

What was measured:

- XLA considers the write of one row into a ring cheap enough to repeat inside the
  following read, and for that it copies the whole ring at each step. So the ring is
  written two rows at a time: 16 000 became 27 000 steps per second.
- Operands of a `cond` are copied; operands of a loop with 0 or 1 iterations are not
  (`xla.control_flow.update_if`).
- A select over the whole optimizer state costs a tenth of a small update, so only the
  parameter updates are masked.
- A donated buffer that is reshaped on the way is not written in place. On the host a
  single seed has no seed axis between two steps. A program that only reshapes a donated
  buffer does not copy it. So one such program per large array removes the axis before a
  chunk and adds it afterwards. A program of several arrays would copy some of them,
  because JAX gives donated memory to any result of the same shape or size.
- Each argument and each result of a program costs one or two microseconds per call. On
  the host, where every step is a call, the small arrays of a single seed are packed
  into one array per dtype, with the metrics among them (`xla.packing`): 3 200 became 5
  300 steps/s. Between two calls the code of the program and of NumPy leaves the CPU's
  cache, so each operation is slow: an adapter without unnecessary operations reached 6
  250.
- A kernel takes some 70 ns, even for one number. So the compiled loop carries
  statistics and metrics as one array per dtype, and also the narrow leaves of a ring's
  row. Its speed rose from 0.91 to 0.94 of a bare loop's, and the host's from 6 250 to 7
  290 steps/s.
- Waking a sleeping core takes as long as a step of the host loop. So Python and XLA's
  only thread are pinned to one core for the length of a chunk, and dispatch is
  synchronous.
- With `vmap` *and* packing, sums are computed in another order than in the compiled
  loop; hence only a single seed is packed. tests/loop checks that the two loops give
  equal results.
- XLA hoists loop-invariant computations out of a loop, even if the loop runs 0 times: a
  sort that was due once in a thousand steps ran in each.
- A sum tree with sixteen children per node needs four small gathers for 50 000 leaves:
  9 µs to draw a batch of 32 and write it back. Thirty-two children take twice that.
- The gradient of a strided convolution takes minutes to compile on a CPU (Atari's: 231
  s) and three times as long to run. With s × s pixels folded into the channels the
  stride is 1, and it compiles in half a second.
- On CPUs XLA drops `optimization_barrier` before fusion. It does not fuse across a
  `cond`, which costs half a microsecond (`xla.fusion_barrier`). XLA recomputed a single
  SpaceInvaders environment for each of its 600 cells; with the barrier it is five times
  as fast.
- JAX's random bits on a CPU are a loop of five passes through memory. Unrolled
  (`xla.random_bits`), with the same bits, they are one pass: a vector of 2 000
  environments draws five times as fast, a single environment ten times. When fused with
  their consumers they would be recomputed for each consumer, so a batch of 128 or more
  hashes is behind such a `cond`.
- If several operands of a concatenation read one hash, some of them single elements and
  one of them all elements, the compiler repeats the hash for each element: with 18
  coins, `bsuite/UmbrellaChain` never finished compiling. With a fusion barrier behind
  the hash it compiles in 0.2 s. `tests/environments/native/test_compile_times.py`
  compiles every environment at its largest parameters in a process with a time limit.
"""

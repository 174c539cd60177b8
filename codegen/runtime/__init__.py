"""The runtime of compiled functions: arguments as they are checked, passed and returned, threads, faults, times.

`signature` has what callers give and get, `arguments` and `dlpack` their arrays as kernels take them, `kernel` a function that
was compiled, `faults` what it reports in place of results, `openmp` the threads it runs on, and `timing` how long it takes.
"""

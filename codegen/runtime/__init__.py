"""The runtime of compiled functions.

`signature` binds the arguments and results of calls, `arguments` and `dlpack` check and read arrays. `kernel` is a compiled
function, `faults` turns its status into errors, `openmp` has its threads, and `timing` its times.
"""

"""The search on GPUs: rules that tile through shared memory and registers, and bind loops to blocks and threads; and populations
whose rows fit the device."""

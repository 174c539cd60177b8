"""The door to `workloads`."""

from workloads import *  # noqa: F403

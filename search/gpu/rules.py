"""The rules of the spaces for GPUs, in the order in which they are tried: the templates, with open numbers."""

from __future__ import annotations

from schedule.templates.gpu import ANSOR, TEMPLATES

from ..rules.rule import Rule
from ..rules.skip import Skip

GPU: tuple[Rule, ...] = (*TEMPLATES, Skip())
GPU_ANSOR: tuple[Rule, ...] = (*ANSOR, Skip())

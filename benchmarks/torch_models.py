"""Models as users of torch have them, with random weights: of torchvision, timm and transformers, in inference, batch 1.

Weights and the statistics of batch norms are drawn as in `torch_networks`, so that every layer matters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from .torch import OF_WORDS, TIMM, TORCHVISION, WORDS
from .torch_networks import _calibrate, _draw, _torchvision, _transformers

Model = Callable[[], tuple[nn.Module, tuple[Any, ...]]]  # the module and inputs for it

SEED = 0
LETTERS = 64  # tokens of an input


class Tensors(nn.Module):
    """A model of transformers as a function of tokens and their mask to its tensors."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = self.model(input_ids=tokens, attention_mask=mask)
        return tuple(t for t in found.to_tuple() if isinstance(t, torch.Tensor))


class Rounded(TorchDispatchMode):
    """Arithmetic in float64 in which each operation's result is rounded to float32, once."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        each = found if isinstance(found, (tuple, list)) else (found,)
        for result, t in zip(func._schema.returns, each, strict=False):
            view = result.alias_info is not None and not result.alias_info.is_write
            if isinstance(t, torch.Tensor) and t.dtype == torch.float64 and not view:
                t.copy_(t.float())
        return found


def longest_sum(module: nn.Module) -> int:
    """Terms of the longest sum of products with a weight: the elements of one row, at least 1."""
    weights = (p for name, p in module.named_parameters() if name.endswith("weight") and p.dim() > 1)
    return max((p[0].numel() for p in weights), default=1)


def _vision(name: str) -> Model:
    def make() -> tuple[nn.Module, tuple[Any, ...]]:
        options = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
        size = 299 if name == "inception_v3" else 224
        return getattr(_torchvision().models, name)(weights=None, **options), (torch.randn(1, 3, size, size),)

    return make


def _timm(name: str) -> Model:
    def make() -> tuple[nn.Module, tuple[Any, ...]]:
        import timm

        model = timm.create_model(name, pretrained=False)
        return model, (torch.randn(1, *model.default_cfg["input_size"]),)

    return make


def _of_words(name: str) -> Model:
    def make() -> tuple[nn.Module, tuple[Any, ...]]:
        kind, options = OF_WORDS[name]
        library = _transformers()
        model = getattr(library, kind)
        config = model.config_class(**options)
        config.use_cache = False
        mask = torch.ones(1, LETTERS, dtype=torch.int64)
        return Tensors(model(config)), (torch.randint(0, WORDS, (1, LETTERS)), mask)

    return make


MODELS: dict[str, Model] = {
    **{name: _vision(name) for name in TORCHVISION},
    **{f"timm/{name}": _timm(name) for name in TIMM},
    **{f"words/{name}": _of_words(name) for name in OF_WORDS},
}


def build(name: str) -> tuple[nn.Module, tuple[Any, ...]]:
    """A model of MODELS in inference and inputs for it, the same at each call."""
    torch.manual_seed(SEED)
    module, inputs = MODELS[name]()
    module.eval()
    with torch.no_grad():
        for parameter in module.parameters():
            _draw(parameter)
        for layer in module.modules():
            if isinstance(layer, (nn.modules.batchnorm._BatchNorm, nn.LayerNorm, nn.GroupNorm)) and layer.weight is not None:
                layer.weight.uniform_(0.5, 1.5)
        _calibrate(module, inputs)
    return module, inputs

"""A gate, which scales the channels of one image, scales the weights of the convolution that reads it instead."""

from __future__ import annotations

from ..ir import Call, Value
from .rewriting import FULL_RANGE, Rewriting, each_call, parted, reads_padding

MIN_IMAGE_TO_WEIGHTS = 4  # least ratio of the sizes of image and weights for which scaling the weights at each call pays


@each_call
def move_gates(r: Rewriting, call: Call) -> Value | None:
    """Conv(g * x, w) becomes Conv(x, g * w) for one image x, a number g for each channel, as in squeeze-and-excite, and weights
    that are enough smaller than x.

    Not for float16, whose products may overflow; and not where zeros surround the image, which an infinite g would make NaN.
    """
    gated, weights = (*call.inputs, None)[:2] if call.operator == "Conv" else (None, None)
    scaled = r.producer(gated, "Mul")
    if scaled is None or gated is None or weights is None or not r.read_once(gated) or gated.dtype not in FULL_RANGE:
        return None
    channels = (1, gated.shape[1], *(1 for _ in gated.shape[2:]))
    gate, image = parted(scaled, lambda v: v.shape == channels)
    if gate is None or image is None or image.shape != gated.shape or weights.shape[1] != channels[1] or reads_padding(call):
        return None
    if image.nbytes < MIN_IMAGE_TO_WEIGHTS * weights.nbytes:
        return None
    return r("Conv", image, r("Mul", weights, gate), *call.inputs[2:], **dict(call.attributes))

"""Reasons why nodes cannot be imported, found without shapes: whether values are constant is known without them."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import TYPE_CHECKING

from ..builder import trimmed
from ..ops import Operator, alternatives, qualified, unknown
from .computed import needs_shape
from .functions import has_function

if TYPE_CHECKING:
    import onnx

OF_CONSTANTS = (  # operators whose inputs give the shape of the result
    "BlackmanWindow", "ConstantOfShape", "HammingWindow", "HannWindow", "MelWeightMatrix", "Range",
)  # fmt: skip
MEASURES = ("SequenceLength", "Shape", "Size")  # constant, whatever their input is, as shapes are static
OF_FIRST = ("If", "CastLike")  # taken for constant where their first input is: a branch may make constants
OF_SEQUENCES = ("ConcatFromSequence", "SequenceAt", "SequenceErase", "SequenceInsert", "SequenceLength")
SEQUENCES = (*OF_SEQUENCES, "SequenceConstruct", "SequenceEmpty", "SplitToSequence")
RANDOM = ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
HOLDERS = ("If", "Loop", "Scan")  # hold graphs, through which sequences go as they are
UNUSED = ("consumed_inputs", "output_sequence")  # attributes of old versions that change no result
UNKNOWN = "there is no such operator"  # the beginning of what `unknown` says
SUBGRAPHS = (5, 10)  # the types of attributes that hold graphs


def refusal(node: onnx.NodeProto, known: Container[str], opsets: Mapping[str, int]) -> str:
    """The reason why a node cannot be imported; empty if it can, as far as is known without shapes."""
    domain = domain_of(node.domain)
    if domain not in opsets:
        return "the file does not say which version of this domain it means"
    opset = opsets[domain]
    found = alternatives(operator_of(node), opset)
    holder = any(o.composite for o in found) or (domain and has_function(node.op_type, opset, domain))
    if any(a.type in SUBGRAPHS for a in node.attribute) and not holder:
        return "graphs inside of nodes are not supported"
    if folds(node, known):
        return ""
    remedy = ", or the file must state the shape of its result" if needs_shape(node, known) else ""
    for name in node.input if node.op_type in OF_CONSTANTS and not domain else ():
        if name not in known:
            return f"its input `{name}` must be constant{remedy}"
    if reasons := [misfit(node, o, known) for o in found]:
        return "" if "" in reasons else reasons[0] + remedy
    if has_function(node.op_type, opset, domain):
        return ""
    return unknown(operator_of(node))


def operator_of(node: onnx.NodeProto) -> str:
    """The name of a node's operator, with its domain unless that is ONNX's own."""
    return qualified(node.op_type, domain_of(node.domain))


def domain_of(name: str) -> str:
    return "" if name == "ai.onnx" else name


def folds(node: onnx.NodeProto, known: Container[str]) -> bool:
    """True where a node depends on nothing but values that are known."""
    if node.op_type in MEASURES and not domain_of(node.domain):
        return True
    plain = node.op_type not in (*RANDOM, *SEQUENCES) and not any(a.type in SUBGRAPHS for a in node.attribute)
    return plain and all(name in known for name in node.input if name)


def misfit(node: onnx.NodeProto, found: Operator, known: Container[str]) -> str:
    """The reason why an operator does not take a node; empty if it does."""
    operands, tensors = found.taken(node.input, lambda name: name in known)
    for n, attribute in operands:
        if node.input[n] not in known:
            return f"its {attribute}, `{node.input[n]}`, must be constant"
    given = {a.name for a in node.attribute if a.name not in UNUSED} | {a for _, a in operands}
    return found.misfit(trimmed([node.input[n] for n in tensors]), given)
